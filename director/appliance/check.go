package appliance

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"github.com/director-kaas/kaas/director"
)

// Finding is what a check found.
type Finding struct {
	What string // such as "DNS server 192.0.2.53"
	Good string // what was seen, if it is all right
	Err  error  // what is wrong, with a hint
	// Warning is true if Err keeps nothing from working.
	Warning bool
}

// checkWithin is how long one check waits.
const checkWithin = 5 * time.Second

// mostOffset is how far the VM's clock may be from a server's: certificates and log-ins of others begin to fail beyond.
const mostOffset = 2 * time.Second

// Check asks each DNS server and each NTP server of the setup, and connects to each target: a URL of a vCenter, a
// libvirt URI or HOST:PORT. It changes nothing.
func Check(ctx context.Context, s Setup, targets []string) []Finding {
	var all []Finding
	for _, d := range s.DNS {
		all = append(all, checkDNS(ctx, netip.AddrPortFrom(d, 53).String(), s.Hostname))
	}
	for _, server := range s.NTP {
		all = append(all, checkNTP(ctx, net.JoinHostPort(server, "123"), time.Now))
	}
	for _, target := range targets {
		all = append(all, checkTarget(ctx, target))
	}
	return all
}

func wrong(what string, hint string, format string, args ...any) Finding {
	return Finding{What: what, Err: director.Errorf(
		director.KindUnavailable, "appliance.check", format, args...,
	).WithHint("%s", hint)}
}

// checkDNS asks the server for the name. That it does not know the name is an answer.
func checkDNS(ctx context.Context, server, name string) Finding {
	what := "DNS server " + server
	ctx, cancel := context.WithTimeout(ctx, checkWithin)
	defer cancel()
	r := net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, server)
	}}
	addresses, err := r.LookupHost(ctx, name+".")
	if dns, ok := errors.AsType[*net.DNSError](err); ok && dns.IsNotFound {
		return Finding{What: what, Good: "answers; it does not know " + name}
	}
	if err != nil {
		return wrong(what, "correct the property dns, or let port 53 through", "does not answer: %w", err)
	}
	return Finding{What: what, Good: fmt.Sprintf("answers; %s is %s", name, strings.Join(addresses, ", "))}
}

// checkNTP asks a server for the time by SNTP (RFC 4330).
func checkNTP(ctx context.Context, server string, now func() time.Time) Finding {
	what := "NTP server " + server
	fail := func(err error) Finding {
		return wrong(what, "correct the property ntp, or let port 123 of UDP through", "does not answer: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, checkWithin)
	defer cancel()
	conn, err := (&net.Dialer{}).DialContext(ctx, "udp", server)
	if err != nil {
		return fail(err)
	}
	defer conn.Close()
	deadline, _ := ctx.Deadline()
	if err := conn.SetDeadline(deadline); err != nil {
		return fail(err)
	}
	request := [48]byte{0x23} // version 4, client
	sent := now()
	if _, err := conn.Write(request[:]); err != nil {
		return fail(err)
	}
	var reply [48]byte
	n, err := conn.Read(reply[:])
	if err != nil {
		return fail(err)
	}
	if n < len(reply) || reply[0]&7 != 4 || reply[1] == 0 || reply[1] > 15 || reply[0]>>6 == 3 {
		return wrong(
			what, "ask the administrator of it; name another one meanwhile", "answers that it has no time itself",
		)
	}
	// Seconds since 1900 and a fraction of 32 bits, when the answer was sent.
	seconds, fraction := binary.BigEndian.Uint32(reply[40:]), binary.BigEndian.Uint32(reply[44:])
	theirs := time.Unix(int64(seconds)-2208988800, int64(fraction)*1e9>>32)
	got := now()
	offset := theirs.Sub(sent.Add(got.Sub(sent) / 2)).Round(time.Millisecond)
	if days := offset.Abs() / (24 * time.Hour); days > 0 {
		side := "ahead of"
		if offset > 0 {
			side = "behind"
		}
		return wrong(
			what, "set the clock, as root: chronyc makestep; until then, certificates, log-ins and schedules go by a "+
				"wrong time",
			"the clock of this VM is %d days %s its time", days, side,
		)
	}
	if offset.Abs() > mostOffset {
		return wrong(what, "wait for chrony to set the clock: chronyc tracking", "its time differs by %s", offset)
	}
	return Finding{What: what, Good: fmt.Sprintf("answers; its time differs by %s", offset)}
}

// addressOf returns where a target listens.
func addressOf(target string) (string, error) {
	if !strings.Contains(target, "://") {
		_, _, err := net.SplitHostPort(target)
		return target, err
	}
	u, err := url.Parse(target)
	if err != nil || u.Hostname() == "" {
		return "", fmt.Errorf("%q names no host", printable(target))
	}
	port := u.Port()
	if port == "" {
		port = map[string]string{
			"https": "443", "qemu+ssh": "22", "qemu+tls": "16514", "qemu+tcp": "16509", "qemu": "16514",
		}[u.Scheme]
		if port == "" {
			return "", fmt.Errorf("the port of %s is not known", printable(u.Scheme))
		}
	}
	return net.JoinHostPort(u.Hostname(), port), nil
}

func checkTarget(ctx context.Context, target string) Finding {
	what := "hypervisor " + printable(target)
	address, err := addressOf(target)
	if err != nil {
		return wrong(what, "such as https://vcenter.example.org, qemu+ssh://root@host/system or host:22", "%w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, checkWithin)
	defer cancel()
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
	if err != nil {
		return wrong(
			what, "compare address, gateway and firewalls in between", "%s cannot be reached: %w", address, err,
		)
	}
	_ = conn.Close()
	return Finding{What: what, Good: address + " takes connections"}
}
