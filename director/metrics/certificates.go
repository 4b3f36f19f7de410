package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/director-kaas/kaas/director"
)

var (
	certLabels   = []string{"cluster", "node", "name", "source"}
	descCertEnds = prometheus.NewDesc(
		namespace+"_certificate_end_timestamp_seconds",
		"When certificates end; of several with the same labels, the first end.", certLabels, nil,
	)
	descCertSeen = prometheus.NewDesc(
		namespace+"_certificate_seen_timestamp_seconds", "When certificates were seen last.", certLabels, nil,
	)
	descCertBegins = prometheus.NewDesc(
		namespace+"_certificate_begin_timestamp_seconds",
		"When certificates of the director begin that it renews by itself.", certLabels, nil,
	)
)

// certificateEnds shows the ends of certificates. Those with the same labels are one, so that chains and secrets do not
// make more series than there are nodes.
func certificateEnds(list []director.Certificate, out chan<- prometheus.Metric) {
	type key [4]string
	first := map[key]director.Certificate{}
	for _, c := range list {
		k := key{c.Cluster, c.Node, c.Name, string(c.Source)}
		if f, known := first[k]; !known || c.Ends.Before(f.Ends) {
			first[k] = c
		}
	}
	for k, c := range first {
		out <- prometheus.MustNewConstMetric(
			descCertEnds, prometheus.GaugeValue, float64(c.Ends.Unix()), k[0], k[1], k[2], k[3],
		)
		out <- prometheus.MustNewConstMetric(
			descCertSeen, prometheus.GaugeValue, float64(c.Seen.Unix()), k[0], k[1], k[2], k[3],
		)
		if c.ClusterUID == "" && c.Name == director.CertificateACME {
			out <- prometheus.MustNewConstMetric(
				descCertBegins, prometheus.GaugeValue, float64(c.Begins.Unix()), k[0], k[1], k[2], k[3],
			)
		}
	}
}
