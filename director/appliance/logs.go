package appliance

import (
	"bytes"
	"errors"
	"os"
	"regexp"
	"text/template"

	"gopkg.in/yaml.v3"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/logserver"
)

const opLogs = "appliance.logs"

// Files of the rsyslogd that sends the journal. They are below /etc; its unit starts only with the first one.
const (
	logsDir    = "director-logs"
	logsConfig = logsDir + "/rsyslog.conf"
	logsCA     = logsDir + "/ca.crt"
	logsCert   = logsDir + "/client.crt"
	logsKey    = logsDir + "/client.key"
)

// logsState is the directory on the data disk in which rsyslogd keeps its place in the journal.
const logsState = "logs"

// trustedCAs are the authorities that the appliance trusts.
const trustedCAs = "/etc/ssl/certs/ca-certificates.crt"

// rsyslog is the configuration of rsyslogd. It reads the journal, and does nothing else than send it. It tells a server
// from others by the name in a certificate that is for servers.
//
// The journal is the queue: it is on the data disk, and bounded. rsyslogd reads no further while a message cannot be
// sent, and keeps its place. A disk queue of its own loses the batch in hand when it is stopped while the server is
// away, and changes the order. Its unit kills it: when it ends by itself, it writes down the message in hand as sent.
//
// TLS 1.2 is what each syslog server has (RFC 9662, section 4). With TLS 1.3, servers send session tickets, which
// rsyslogd 8.2302 does not read. They hide from it that the server has closed the connection, and the next message is
// lost.
var rsyslog = template.Must(template.New("rsyslog").Option("missingkey=error").Parse(`# Written by director setup apply.
global(
  workDirectory="{{.State}}"
  localHostname="{{.HostName}}"
  maxMessageSize="8k"
  processInternalMessages="off" errorMessagesToStderr.maxNumber="10"
  defaultNetstreamDriver="gtls"
  defaultNetstreamDriverCAFile="{{.CA}}"
{{- if .Cert}}
  defaultNetstreamDriverCertFile="{{.Cert}}"
  defaultNetstreamDriverKeyFile="{{.Key}}"
{{- end}}
)
module(load="imjournal"
  stateFile="journal.state" persistStateInterval="1" ignorePreviousMessages="on"
  ratelimit.interval="0"
)
template(name="message" type="string"
  string="<%PRI%>1 %TIMESTAMP:::date-rfc3339% %HOSTNAME% %APP-NAME% %PROCID% %MSGID% %STRUCTURED-DATA% %msg%")
main_queue(queue.type="Direct")
action(type="omfwd"
  target="{{.Host}}" port="{{.Port}}" protocol="tcp" TCP_Framing="octet-counted"
  template="message"
  streamDriver="gtls" streamDriverMode="1"
  streamDriverAuthMode="x509/name" streamDriverPermittedPeers="{{.Name}}"
  streamDriver.CheckExtendedKeyPurpose="on" streamDriver.PermitExpiredCerts="off"
  gnutlsPriorityString="NORMAL:-VERS-ALL:+VERS-TLS1.2"
  action.resumeRetryCount="-1" action.resumeInterval="10"
)
`))

// plain is what may be between the quotes of that file.
var plain = regexp.MustCompile(`^[A-Za-z0-9:][A-Za-z0-9.:_-]*$|^(/[A-Za-z0-9._-]+)+$`)

// journalLogs writes what sends the journal to a log server.
type journalLogs struct{ Place }

func (p Place) logs() journalLogs { return journalLogs{p} }

// WriteLogs writes what sends the journal to the log server in the administrator's own settings, or removes it if there
// is none, and if the settings are wrong. No other service needs it. It is idempotent. Errors: invalid, which names the
// setting; internal.
func (p Place) WriteLogs(s Setup) error { return p.logs().write(s) }

// settings returns where the journal goes; Journal is false if nowhere. Errors: invalid.
func (p journalLogs) settings() (logserver.Settings, error) {
	own, err := os.ReadFile(p.data(OwnConfig))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return logserver.Settings{}, director.Errorf(director.KindInternal, opLogs, "%w", err)
	}
	var all struct {
		Server logserver.Settings `yaml:"auditSyslog"`
	}
	if err := yaml.Unmarshal(own, &all); err != nil {
		return all.Server, director.Errorf(director.KindInvalid, opLogs, "%s: %w", p.data(OwnConfig), err).
			WithHint("correct it, and run: director setup apply")
	}
	if !all.Server.Journal {
		return logserver.Settings{}, nil
	}
	return all.Server, director.Invalid(opLogs, "the journal cannot be sent", all.Server.Check())
}

func (p journalLogs) write(s Setup) error {
	server, err := p.settings()
	if err == nil && server.Journal {
		err = p.writeFiles(server, s)
	}
	if err != nil || !server.Journal {
		return errors.Join(err, p.remove())
	}
	return nil
}

func (p journalLogs) remove() error {
	var all []error
	for _, name := range []string{logsConfig, logsKey, logsCert, logsCA} {
		all = append(all, removeFile(p.etc(name)))
	}
	return errors.Join(all...)
}

func (p journalLogs) writeFiles(server logserver.Settings, s Setup) error {
	files, err := server.Read()
	if err != nil {
		return err
	}
	config, err := p.config(server, s)
	if err != nil {
		return err
	}
	if err := p.directories(); err != nil {
		return director.Errorf(director.KindInternal, opLogs, "directories of rsyslogd cannot be made: %w", err)
	}
	// The configuration is last: it says that all is there.
	for _, f := range []struct {
		name string
		text []byte
		mode os.FileMode
	}{
		{logsCA, files.CA, 0o644},
		{logsCert, files.Cert, 0o644},
		{logsKey, files.Key, 0o640},
		{logsConfig, config, 0o644},
	} {
		if f.text == nil {
			err = removeFile(p.etc(f.name))
		} else {
			err = p.readable(f.name, f.text, f.mode)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// readable writes a file that the group of rsyslogd may read.
func (p journalLogs) readable(name string, text []byte, mode os.FileMode) error {
	if err := writeFile(p.etc(name), text, mode); err != nil || p.User < 0 {
		return err
	}
	if err := os.Lchown(p.etc(name), 0, p.Logs); err != nil {
		return director.Errorf(director.KindInternal, opLogs, "%w", err)
	}
	return nil
}

// directories makes the directory of the state, which is rsyslogd's own, and that of the configuration, which it may
// read. The umask of setup apply keeps others out of what it makes.
func (p journalLogs) directories() error {
	state, config := p.data(logsState), p.etc(logsDir)
	err := errors.Join(os.MkdirAll(state, 0o755), os.MkdirAll(config, 0o755))
	if err == nil && p.User >= 0 {
		err = os.Lchown(state, p.Logs, p.Logs)
	}
	if err == nil {
		err = errors.Join(os.Chmod(state, 0o700), os.Chmod(config, 0o755))
	}
	return err
}

// config returns the configuration of rsyslogd for settings without a problem.
func (p journalLogs) config(server logserver.Settings, s Setup) ([]byte, error) {
	host, port := server.HostPort()
	values := map[string]string{
		"Host": host, "Port": port, "Name": server.Name(), "HostName": s.Hostname,
		"State": p.data(logsState), "CA": trustedCAs, "Cert": "", "Key": "",
	}
	if server.HostName != "" {
		values["HostName"] = server.HostName
	}
	if server.CAFile != "" {
		values["CA"] = p.etc(logsCA)
	}
	if server.CertFile != "" {
		values["Cert"], values["Key"] = p.etc(logsCert), p.etc(logsKey)
	}
	for key, value := range values {
		if value != "" && !plain.MatchString(value) {
			return nil, director.Errorf(
				director.KindInvalid, opLogs, "the journal cannot be sent: %s has characters that are not allowed: %q",
				key, printable(value),
			)
		}
	}
	var b bytes.Buffer
	if err := rsyslog.Execute(&b, values); err != nil {
		return nil, director.Errorf(director.KindInternal, opLogs, "%w", err)
	}
	return b.Bytes(), nil
}
