package daemon

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"gopkg.in/yaml.v3"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/ansible"
	"github.com/director-kaas/kaas/director/logserver"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/simulate"
	"github.com/director-kaas/kaas/director/step"
	"github.com/director-kaas/kaas/director/store"
	"github.com/director-kaas/kaas/director/wire"
)

// Config is the director's configuration file. Secrets are never in it, only paths of files that hold them.
type Config struct {
	StateDir string `yaml:"stateDir"` // everything that the director keeps
	// RunDir holds what a playbook is given while it runs, secrets too. In memory, they come to no disk, and many plays
	// start faster. Below the RUNTIME_DIRECTORY of systemd, or in stateDir, if empty.
	RunDir string `yaml:"runDir"`
	// a PostgreSQL that directors share, without a password; SQLite in stateDir if empty
	Database       string     `yaml:"database"`
	Listen         string     `yaml:"listen"`         // address of the API
	RegistryListen string     `yaml:"registryListen"` // address of the registry
	PeerAddress    string     `yaml:"peerAddress"`    // host:port of the API for other directors; listen if empty
	Address        netip.Addr `yaml:"address"`        // the director as its nodes reach it
	Names          []string   `yaml:"names"`          // further names in the director's certificate
	PublicURL      string     `yaml:"publicURL"`      // how browsers reach the director; https://ADDRESS:PORT if empty
	// CertificateFile and CertificateKeyFile hold a certificate of yours with its chain, and its key, in PEM. The
	// console and the API show it to clients that ask for one of its names.
	CertificateFile    string `yaml:"certificateFile"`
	CertificateKeyFile string `yaml:"certificateKeyFile"`
	// RegistryAnonymous says who may pull without credentials: existing (anyone, while there are clusters from before
	// they had some) or never.
	RegistryAnonymous string `yaml:"registryAnonymous"`
	// RegistryBucket is where the registry keeps images; in stateDir without one.
	RegistryBucket RegistryBucket `yaml:"registryBucket"`
	// MetricsTokenFile holds the bearer token for /metrics; metrics.token in stateDir, made at the first start, if
	// empty.
	MetricsTokenFile  string `yaml:"metricsTokenFile"`
	AdminPasswordFile string `yaml:"adminPasswordFile"` // first password of admin; random and printed once if empty
	// AdminPasswordHashFile holds the hash of the first password of admin, as director setup hash writes it.
	AdminPasswordHashFile string `yaml:"adminPasswordHashFile"`
	// DatabasePasswordFile holds the password for Database.
	DatabasePasswordFile string `yaml:"databasePasswordFile"`
	AnsiblePlaybook      string `yaml:"ansiblePlaybook"` // name or path of ansible-playbook
	// further known causes of failures, see docs/reference/causes.md
	CausesFile string `yaml:"causesFile"`
	// hosts that Ansible works on at once, about 100 MB of memory each
	Forks             int `yaml:"forks"`
	StepsAtOnce       int `yaml:"stepsAtOnce"`       // steps that run at once, over all plans
	ClonesPerProvider int `yaml:"clonesPerProvider"` // VMs that are made at once on one provider
	ClonesPerHost     int `yaml:"clonesPerHost"`     // VMs that are made at once on one hypervisor host
	// VMs that are made in any hour, over all providers; 0 without bound
	CreationsPerHour int        `yaml:"creationsPerHour"`
	PlanLife         Span       `yaml:"planLife"`         // how long a plan can be started after it was made
	Approval         string     `yaml:"approval"`         // who agrees to plans that destroy: none, any, other
	TokenLife        Span       `yaml:"tokenLife"`        // how long a login lasts
	SessionIdle      Span       `yaml:"sessionIdle"`      // how long a browser's session lasts without use
	ImageUploads     int        `yaml:"imageUploads"`     // uploads of images that may be open at once
	ImageUploadsSize model.Size `yaml:"imageUploadsSize"` // the sum of their sizes
	ImageReserve     model.Size `yaml:"imageReserve"`     // what images leave free on the disk, for the database
	// NodeShells is how many shells on nodes administrators may have open at once, through the console; 0 for none.
	NodeShells int `yaml:"nodeShells"`
	// Notice is plain text that the first page of the console shows to everyone who logs in.
	Notice string `yaml:"notice"`
	// TrustedProxies may say in X-Forwarded-For who asks; without them the address of the connection counts.
	TrustedProxies []netip.Prefix `yaml:"trustedProxies"`
	LogLevel       slog.Level     `yaml:"logLevel"`  // debug, info, warn, error
	LogFormat      string         `yaml:"logFormat"` // text or json
	// AuditSyslog is the log server that gets the audit trail.
	AuditSyslog logserver.Settings `yaml:"auditSyslog"`
	// ACME is a server that issues the certificate for the console and the API.
	ACME  ACME `yaml:"acme"`
	Doors `yaml:",inline"`

	// ConsulDir is where the agent of Consul next to this director finds what it is told; empty for no such agent.
	ConsulDir string `yaml:"consulDir"`
	// UpgradeDir is where the appliance says which roots it has, and is asked for others; empty elsewhere.
	UpgradeDir string `yaml:"upgradeDir"`
	// Held directors begin no work and take no changes until root releases them. The appliance holds that of a root
	// that it tries.
	Held bool `yaml:"held"`

	// pretend all hypervisors, nodes and playbooks; see docs/start/simulate.md
	Simulate   bool              `yaml:"simulate"`
	Simulation simulate.Settings `yaml:"simulation"` // how that goes

	File string `yaml:"-"` // that it was read from; empty without one
}

// Span is a time span, written as 12h or 30m.
type Span time.Duration

// UnmarshalText reads what time.ParseDuration takes.
func (s *Span) UnmarshalText(b []byte) error {
	d, err := time.ParseDuration(string(b))
	*s = Span(d)
	return err
}

// MarshalText writes what UnmarshalText reads.
func (s Span) MarshalText() ([]byte, error) { return []byte(time.Duration(s).String()), nil }

// DefaultConfig returns the configuration of a director without a file. Address has no default.
func DefaultConfig() Config {
	return Config{
		StateDir: "/var/lib/director", Listen: ":8443", RegistryListen: ":5000", RegistryAnonymous: anonymousExisting,
		AnsiblePlaybook: "ansible-playbook", Forks: 10, StepsAtOnce: 32,
		ClonesPerProvider: 16, ClonesPerHost: 4, CreationsPerHour: 2000, PlanLife: Span(24 * time.Hour),
		Approval: "none", TokenLife: Span(12 * time.Hour), SessionIdle: Span(2 * time.Hour),
		LogFormat:    "text",
		ImageUploads: 16, ImageUploadsSize: 256 * model.GiB, ImageReserve: model.GiB,
		Doors: defaultDoors(), Simulation: simulate.DefaultSettings(),
	}
}

// LoadConfig reads the file over the defaults. It is strict: an unknown key is a problem. All problems come back in one
// invalid error.
func LoadConfig(path string) (Config, error) {
	c := DefaultConfig()
	c.File = path
	text, err := os.ReadFile(path)
	if err != nil {
		return c, director.Errorf(director.KindInvalid, "daemon.config", "the configuration cannot be read: %w", err).
			WithHint("name a file with -config; see docs/start/own-hypervisor.md for one")
	}
	dec := yaml.NewDecoder(bytes.NewReader(text))
	dec.KnownFields(true)
	if err := dec.Decode(&c); err != nil && !errors.Is(err, io.EOF) {
		var fields []director.Field
		if te, ok := errors.AsType[*yaml.TypeError](err); ok {
			for _, line := range te.Errors {
				fields = append(fields, director.Field{Path: path, Msg: line})
			}
		} else {
			fields = []director.Field{{Path: path, Msg: strings.TrimPrefix(err.Error(), "yaml: ")}}
		}
		return c, director.Invalid("daemon.config", "the configuration is wrong", fields)
	}
	return c, c.Validate()
}

// Validate returns every problem of the configuration in one invalid error.
func (c Config) Validate() error {
	var p problems
	if c.RunDir != "" && !filepath.IsAbs(c.RunDir) {
		p.add("runDir", "beginning with /", "%q is not an absolute path", c.RunDir)
	}
	if !filepath.IsAbs(c.StateDir) {
		p.add("stateDir", "beginning with /", "%q is not an absolute path", c.StateDir)
	}
	if c.ConsulDir != "" && !filepath.IsAbs(c.ConsulDir) {
		p.add("consulDir", "beginning with /", "%q is not an absolute path", c.ConsulDir)
	}
	c.checkDatabase(&p)
	if c.AdminPasswordHashFile != "" && c.AdminPasswordFile != "" {
		p.add("adminPasswordHashFile", "leave one of them out", "is there, and adminPasswordFile too")
	}
	if (c.CertificateFile == "") != (c.CertificateKeyFile == "") {
		p.add("certificateFile", "name both or none", "and certificateKeyFile belong together")
	}
	c.checkAddresses(&p)
	c.checkLimits(&p)
	c.checkChoices(&p)
	c.checkNotice(&p)
	c.checkCauses(&p)
	p = append(p, c.doorProblems()...)
	c.checkLogServer(&p)
	c.checkACME(&p)
	c.checkRegistryBucket(&p)
	c.checkSimulation(&p)
	return director.Invalid("daemon.config", "the configuration is wrong", p)
}

// problems are what is wrong in a configuration.
type problems []director.Field

func (p *problems) add(key, hint, format string, args ...any) {
	*p = append(*p, director.Field{Path: key, Msg: fmt.Sprintf(format, args...), Hint: hint})
}

func (c Config) checkDatabase(p *problems) {
	if c.Database != "" {
		if err := store.CheckURL(c.Database); err != nil {
			p.add(
				"database",
				"such as postgres://director@db.example.net/director?sslmode=verify-full; the password goes into "+
					"databasePasswordFile",
				"%v", err,
			)
		}
	} else if c.DatabasePasswordFile != "" {
		p.add(
			"databasePasswordFile", "name the PostgreSQL in database, or leave this out",
			"is of no use without database",
		)
	}
}

// publicURL is how browsers reach the director.
func (c Config) publicURL() string {
	if c.PublicURL != "" {
		return strings.TrimSuffix(c.PublicURL, "/")
	}
	_, port, err := net.SplitHostPort(c.Listen)
	if err != nil || port == "443" {
		return "https://" + c.Address.String()
	}
	return "https://" + net.JoinHostPort(c.Address.String(), port)
}

// checkAddresses checks where the director listens, where nodes reach it, and which proxies it believes.
func (c Config) checkAddresses(p *problems) {
	if u, err := url.Parse(c.PublicURL); c.PublicURL != "" && (err != nil || u.Scheme != "https" || u.Host == "" ||
		u.User != nil || strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.Fragment != "") {
		p.add("publicURL", "such as https://director.example.org", "%q is not an address for browsers", c.PublicURL)
	}
	if !c.Address.IsValid() || c.Address.IsUnspecified() {
		p.add("address", "the director's IP address as the nodes reach it", "is missing")
	}
	for key, addr := range map[string]string{"listen": c.Listen, "registryListen": c.RegistryListen} {
		if _, _, ok := strings.Cut(addr, ":"); !ok {
			p.add(key, "such as :8443 or 10.0.0.5:8443", "%q is not an address to listen on", addr)
		}
	}
	if host, port, err := net.SplitHostPort(c.PeerAddress); c.PeerAddress != "" &&
		(err != nil || host == "" || port == "" || strings.ContainsAny(host, "/@ ")) {
		p.add("peerAddress", "such as 192.0.2.11:8443", "%q is not where other directors reach this one", c.PeerAddress)
	}
	if c.Listen == c.RegistryListen {
		p.add("registryListen", "another port", "is the same as listen")
	}
	for i, proxy := range c.TrustedProxies {
		if !proxy.IsValid() || proxy.Bits() == 0 {
			p.add(
				fmt.Sprintf("trustedProxies[%d]", i), "the proxies' own addresses, such as 10.0.0.5/32",
				"%s would let everybody say any address", proxy,
			)
		}
	}
}

// checkLimits checks numbers, durations and sizes.
func (c Config) checkLimits(p *problems) {
	if c.Forks < 1 || c.Forks > 1000 {
		p.add("forks", "1 to 1000", "%d is not allowed", c.Forks)
	}
	if c.StepsAtOnce < 1 || c.StepsAtOnce > 1000 {
		p.add("stepsAtOnce", "1 to 1000", "%d is not allowed", c.StepsAtOnce)
	}
	for key, n := range map[string]int{"clonesPerProvider": c.ClonesPerProvider, "clonesPerHost": c.ClonesPerHost} {
		if n < 1 || n > 1000 {
			p.add(key, "1 to 1000", "%d is not allowed", n)
		}
	}
	if c.CreationsPerHour < 0 {
		p.add("creationsPerHour", "0 without bound, or a number of VMs", "%d is not allowed", c.CreationsPerHour)
	}
	if c.PlanLife < Span(time.Minute) {
		p.add("planLife", "at least 1m", "%s is too short", time.Duration(c.PlanLife))
	}
	if c.TokenLife < Span(time.Minute) {
		p.add("tokenLife", "at least 1m", "%s is too short", time.Duration(c.TokenLife))
	}
	if c.SessionIdle < Span(time.Minute) {
		p.add("sessionIdle", "at least 1m", "%s is too short", time.Duration(c.SessionIdle))
	}
	if c.ImageUploads < 1 || c.ImageUploads > 1000 {
		p.add("imageUploads", "1 to 1000", "%d is not allowed", c.ImageUploads)
	}
	if c.NodeShells < 0 || c.NodeShells > 100 {
		p.add("nodeShells", "0 to 100", "%d is not allowed", c.NodeShells)
	}
	for key, size := range map[string]model.Size{
		"imageUploadsSize": c.ImageUploadsSize, "imageReserve": c.ImageReserve,
	} {
		if size < model.GiB/4 {
			p.add(key, "at least 256MiB", "%s is too small", size)
		}
	}
}

// checkChoices checks the settings that take one of a few words.
func (c Config) checkChoices(p *problems) {
	if !slices.Contains([]string{"none", "any", "other"}, c.Approval) {
		p.add("approval", "none, any or other", "%q is not known", c.Approval)
	}
	if !slices.Contains([]string{anonymousExisting, anonymousNever}, c.RegistryAnonymous) {
		p.add("registryAnonymous", "existing or never", "%q is not known", c.RegistryAnonymous)
	}
	if c.LogFormat != "text" && c.LogFormat != "json" {
		p.add("logFormat", "text or json", "%q is not known", c.LogFormat)
	}
}

// noticeLength bounds a notice, in bytes: every inbox reads it.
const noticeLength = 2000

func (c Config) checkNotice(p *problems) {
	if len(c.Notice) > noticeLength {
		p.add("notice", fmt.Sprintf("at most %d bytes", noticeLength), "has %d bytes", len(c.Notice))
	}
	if err := director.CheckPrintable(c.Notice, "\n"); err != nil {
		p.add("notice", "plain text with line ends alone", "%v", err)
	}
}

func (c Config) checkCauses(p *problems) {
	if c.CausesFile == "" {
		return
	}
	if !filepath.IsAbs(c.CausesFile) {
		p.add("causesFile", "beginning with /", "%q is not an absolute path", c.CausesFile)
	} else if _, err := ansible.ReadCauses(c.CausesFile); err != nil {
		*p = append(*p, causesProblems(err)...)
	}
}

func (c Config) checkSimulation(p *problems) {
	if !c.Simulate {
		return
	}
	*p = append(*p, c.Simulation.Problems("simulation")...)
	if c.Database != "" && c.Simulation.Worlds == "" {
		p.add(
			"simulation.worlds", "a directory that all of them see, beginning with /",
			"is missing: directors that share a database act on the same hypervisors",
		)
	}
}

// budget returns how many steps may hold the budget at once.
func (c Config) budget(name string) int {
	if name, _, _ := strings.Cut(name, "/"); name == step.BudgetDirectorBackup {
		return 1
	}
	rest, ok := strings.CutPrefix(name, step.BudgetClones+"/")
	switch {
	case !ok:
		return 0
	case strings.Contains(rest, "/"):
		return c.ClonesPerHost
	}
	return c.ClonesPerProvider
}

// causesProblems are the problems of the file of causes, each with its line.
func causesProblems(err error) []director.Field {
	e, ok := errors.AsType[*director.Error](err)
	if !ok || len(e.Fields) == 0 {
		return []director.Field{{Path: "causesFile", Msg: err.Error(), Hint: director.HintOf(err)}}
	}
	out := make([]director.Field, len(e.Fields))
	for i, f := range e.Fields {
		out[i] = director.Field{Path: "causesFile: " + f.Path, Msg: f.Msg, Hint: f.Hint}
	}
	return out
}

// settings are what clients of the API go by.
func (c Config) settings() wire.Settings {
	return wire.Settings{
		Approval: c.Approval, NodeShells: c.NodeShells, Notice: strings.TrimSpace(c.Notice),
		PlanLifeSeconds: int64(time.Duration(c.PlanLife) / time.Second),
	}
}
