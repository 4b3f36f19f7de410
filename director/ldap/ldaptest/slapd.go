// Package ldaptest runs OpenLDAP's slapd for tests.
package ldaptest

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-ldap/ldap/v3"

	"github.com/director-kaas/kaas/test/loopback"
)

// What every server has.
const (
	Suffix   = "dc=example,dc=org"
	People   = "ou=people," + Suffix
	Groups   = "ou=groups," + Suffix
	BindDN   = "cn=director," + Suffix
	Password = "the searcher's password"

	rootDN       = "cn=root," + Suffix
	rootPassword = "changes-everything"
)

// Server is a slapd that runs as long as the test, on loopback.
type Server struct {
	URL  string // ldap://, which offers StartTLS
	URLS string // ldaps://
	CA   []byte // of its certificate, which is for localhost; PEM
}

// schema has an attribute of 389 Directory Server, which locks an account.
const schema = `attributetype ( 1.3.6.1.4.1.55555.1.1 NAME 'nsAccountLock'
  EQUALITY caseIgnoreMatch SYNTAX 1.3.6.1.4.1.1466.115.121.1.15 SINGLE-VALUE )
objectclass ( 1.3.6.1.4.1.55555.2.1 NAME 'lockable' SUP top AUXILIARY MAY ( nsAccountLock ) )
`

// Start starts a server with the entries of the LDIF text, which stand below the suffix, the places for people and
// groups and the account that searches. Its certificate ends after life. It gives at most limit entries to
// a question, in all its pages together.
func Start(tb testing.TB, ldif string, life time.Duration, limit string) *Server {
	tb.Helper()
	for _, program := range []string{"slapd", "slapadd"} {
		if _, err := exec.LookPath(program); err != nil {
			if os.Getenv("KAAS_REQUIRE_REAL") != "" {
				tb.Fatalf("%s is missing: apt-get install slapd", program)
			}
			tb.Skipf("%s is missing: apt-get install slapd", program)
		}
	}
	s, dir := &Server{}, tb.TempDir()
	must(tb, os.Mkdir(filepath.Join(dir, "db"), 0o700))
	s.CA = certificate(tb, dir, life)
	write(tb, dir, "ours.schema", schema)
	write(tb, dir, "entries.ldif", base+ldif)
	write(tb, dir, "slapd.conf", strings.NewReplacer("@DIR@", dir, "@LIMIT@", limit).Replace(config))
	conf := filepath.Join(dir, "slapd.conf")
	var said bytes.Buffer
	load := exec.CommandContext(tb.Context(), "slapadd", "-q", "-f", conf, "-l", filepath.Join(dir, "entries.ldif"))
	load.Stdout, load.Stderr = &said, &said
	if err := load.Run(); err != nil {
		tb.Fatalf("slapadd: %v\n%s", err, said.String())
	}
	for range tries {
		if s.serve(tb, conf, filepath.Join(dir, "pid")) {
			return s
		}
	}
	tb.Fatalf("slapd ended at once %d times", tries)
	return nil
}

const tries = 5 // another program may take a free port before slapd has it

// serve starts slapd on free ports, and reports whether it serves them.
func (s *Server) serve(tb testing.TB, conf, pid string) bool {
	tb.Helper()
	plain, secure := loopback.FreeFor(tb), loopback.FreeFor(tb)
	s.URL, s.URLS = fmt.Sprintf("ldap://localhost:%d", plain.Port()), fmt.Sprintf("ldaps://localhost:%d", secure.Port())
	cmd := exec.CommandContext(
		context.WithoutCancel(tb.Context()), "slapd", "-d", "0", "-f", conf, "-h",
		fmt.Sprintf("ldap://%s/ ldaps://%s/", plain, secure),
	)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	cmd.Stderr = os.Stderr
	must(tb, cmd.Start())
	ended := make(chan struct{})
	go func() {
		_ = cmd.Wait()
		close(ended)
	}()
	tb.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-ended
	})
	for end := time.After(20 * time.Second); ; {
		// slapd has its ports before it writes this file. Until then, another program may answer at them.
		_, err := os.Stat(pid)
		if err == nil {
			var conn net.Conn
			conn, err = (&net.Dialer{Timeout: time.Second}).DialContext(tb.Context(), "tcp", secure.String())
			if err == nil {
				_ = conn.Close()
				return true
			}
		}
		select {
		case <-ended:
			return false
		case <-end:
			tb.Fatalf("slapd does not listen: %v", err)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// Change does what the directory's administrator does.
func (s *Server) Change(tb testing.TB, request *ldap.ModifyRequest) {
	tb.Helper()
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(s.CA)
	conn, err := ldap.DialURL(s.URLS, ldap.DialWithTLSConfig(&tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}))
	must(tb, err)
	defer func() { _ = conn.Close() }()
	must(tb, conn.Bind(rootDN, rootPassword))
	must(tb, conn.Modify(request))
}

const config = `include /etc/ldap/schema/core.schema
include /etc/ldap/schema/cosine.schema
include /etc/ldap/schema/inetorgperson.schema
include @DIR@/ours.schema
pidfile @DIR@/pid
modulepath /usr/lib/ldap
moduleload back_mdb
TLSCACertificateFile @DIR@/ca.crt
TLSCertificateFile @DIR@/server.crt
TLSCertificateKeyFile @DIR@/server.key
security simple_bind=128
access to attrs=userPassword by anonymous auth by * none
access to * by dn.exact="` + BindDN + `" read by * none
database mdb
maxsize 268435456
suffix "` + Suffix + `"
rootdn "` + rootDN + `"
rootpw ` + rootPassword + `
directory @DIR@/db
index objectClass,uid,member eq
limits * size.soft=@LIMIT@ size.hard=@LIMIT@ size.pr=700 size.prtotal=@LIMIT@
dbnosync
`

const base = `dn: ` + Suffix + `
objectClass: dcObject
objectClass: organization
o: Example
dc: example

dn: ` + People + `
objectClass: organizationalUnit
ou: people

dn: ` + Groups + `
objectClass: organizationalUnit
ou: groups

dn: ` + BindDN + `
objectClass: applicationProcess
objectClass: simpleSecurityObject
cn: director
userPassword: ` + Password + `

`

// Person is the LDIF text of a person below People. further lines come behind its first object class.
func Person(uid, password string, further ...string) string {
	return fmt.Sprintf("dn: uid=%s,%s\nobjectClass: inetOrgPerson\n%suid: %s\ncn: %s of Example\nsn: %s\n"+
		"mail: %s@example.org\nuserPassword: %s\n\n", uid, People, lines(further), uid, uid, uid, uid, password)
}

// Group is the LDIF text of a group below Groups with the DNs of its members.
func Group(cn string, members ...string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "dn: cn=%s,%s\nobjectClass: groupOfNames\ncn: %s\n", cn, Groups, cn)
	for _, m := range members {
		fmt.Fprintf(&b, "member: %s\n", m)
	}
	return b.String() + "\n"
}

func lines(in []string) string {
	if len(in) == 0 {
		return ""
	}
	return strings.Join(in, "\n") + "\n"
}

func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

func write(tb testing.TB, dir, name, text string) {
	tb.Helper()
	must(tb, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
}

// certificate writes a CA, and a certificate for localhost from it, and returns the CA's.
func certificate(tb testing.TB, dir string, life time.Duration) []byte {
	tb.Helper()
	key := func() *ecdsa.PrivateKey {
		k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		must(tb, err)
		return k
	}
	now := time.Now()
	ca := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "Directory CA"},
		NotBefore: now.Add(-48 * time.Hour), NotAfter: now.Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	server := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "localhost"}, NotBefore: now.Add(-48 * time.Hour),
		NotAfter: now.Add(life), DNSNames: []string{"localhost"},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	caKey, serverKey := key(), key()
	caDER, err := x509.CreateCertificate(rand.Reader, ca, ca, caKey.Public(), caKey)
	must(tb, err)
	serverDER, err := x509.CreateCertificate(rand.Reader, server, ca, serverKey.Public(), caKey)
	must(tb, err)
	keyDER, err := x509.MarshalPKCS8PrivateKey(serverKey)
	must(tb, err)
	text := func(kind string, der []byte) []byte { return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}) }
	write(tb, dir, "ca.crt", string(text("CERTIFICATE", caDER)))
	write(tb, dir, "server.crt", string(text("CERTIFICATE", serverDER)))
	write(tb, dir, "server.key", string(text("PRIVATE KEY", keyDER)))
	return text("CERTIFICATE", caDER)
}
