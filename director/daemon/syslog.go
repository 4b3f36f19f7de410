package daemon

import (
	"context"
	"net"
	"os"
	"strconv"
	"time"

	"github.com/director-kaas/kaas/director/logserver"
	"github.com/director-kaas/kaas/director/store"
	"github.com/director-kaas/kaas/director/syslog"
)

// syslogEvery is how often the trail is looked at for what to send.
const syslogEvery = time.Second

// checkLogServer checks where the audit trail goes besides the database. The journal is sent by the appliance.
func (c Config) checkLogServer(p *problems) {
	*p = append(*p, c.AuditSyslog.Check()...)
	if c.AuditSyslog.Journal && c.UpgradeDir == "" {
		p.add(
			logserver.Key+".journal", "leave it out, and have the syslog daemon of this machine send its journal",
			"is for the appliance alone",
		)
	}
}

// startSyslog sends the audit trail to the log server, if there is one.
func (d background) startSyslog(ctx context.Context, db *store.Store, build Build) error {
	c := d.cfg.AuditSyslog
	if c.Address == "" {
		return nil
	}
	conf, err := c.TLS()
	if err != nil {
		return err
	}
	name := c.HostName
	if name == "" {
		if name, err = os.Hostname(); err != nil {
			name = d.cfg.Address.String()
		}
	}
	facility := syslog.LogAudit
	if c.Facility != 0 {
		facility = syslog.Facility(c.Facility)
	}
	host, port := c.HostPort()
	s := syslog.New(syslog.Config{
		Trail: db, Owner: db.DirectorID() + "/" + name + "/" + strconv.Itoa(os.Getpid()),
		Address: net.JoinHostPort(host, port), TLS: conf, Now: time.Now, Log: d.log,
		Origin: syslog.Origin{Host: name, Version: build.Version, Facility: facility, Process: os.Getpid()},
	})
	d.onStop(func(context.Context) error { s.Close(); return nil })
	d.every(ctx, syslogEvery, "send the audit trail to the log server", s.Tick)
	return nil
}
