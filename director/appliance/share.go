package appliance

import (
	"context"
	"crypto/ed25519"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base32"
	"encoding/json"
	"errors"
	"io"
	"math/big"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/director-kaas/kaas/director"
)

const opShare = "appliance.share"

// SharePort is where an appliance answers those that join its group.
const SharePort = 7443

// ShareWithin is how long it does, for one code.
const ShareWithin = 30 * time.Minute

// A joining member has so long for its question and the answer.
const shareTurn = 2 * time.Minute

// question is what a member asks when it joins.
type question struct {
	Own    netip.Addr `json:"own"`
	Schema string     `json:"schema"` // of the database that its director brings
}

// answer is what it gets.
type answer struct {
	Refused string     `json:"refused,omitempty"` // why it gets nothing
	Hint    string     `json:"hint,omitempty"`
	Group   Group      `json:"group"`
	Files   []handover `json:"files"`
}

// mostAnswer bounds an answer.
const mostAnswer = 16 << 20

// NewCode returns a code that a person carries from one member to another: 160 random bits in groups of letters and
// digits.
func NewCode() director.Secret {
	b := make([]byte, 20)
	_, _ = rand.Read(b) // never fails
	text := base32.StdEncoding.EncodeToString(b)
	parts := make([]string, 0, len(text)/4)
	for part := range slices.Chunk([]byte(text), 4) {
		parts = append(parts, string(part))
	}
	return director.Secret(strings.Join(parts, "-"))
}

// secretOf returns the bits of a code. Errors: invalid.
func secretOf(code director.Secret) ([]byte, error) {
	text := strings.ToUpper(strings.NewReplacer("-", "", " ", "").Replace(code.Reveal()))
	b, err := base32.StdEncoding.DecodeString(text)
	if err != nil || len(b) != 20 {
		return nil, director.Errorf(director.KindInvalid, opShare, "this is not a whole code").
			WithHint("copy the line that director setup share wrote")
	}
	return b, nil
}

// badge returns the key and the certificate of one end, which both ends make of the code: who has the code is who may
// ask, and who may answer. Ed25519 signs without randomness, so both make the same bytes.
func badge(code director.Secret, end string) (tls.Certificate, *x509.CertPool, error) {
	fail := func(err error) (tls.Certificate, *x509.CertPool, error) {
		return tls.Certificate{}, nil, director.Errorf(director.KindInternal, opShare, "%w", err)
	}
	secret, err := secretOf(code)
	if err != nil {
		return tls.Certificate{}, nil, err
	}
	seed, err := hkdf.Key(sha256.New, secret, nil, "director share "+end, ed25519.SeedSize)
	if err != nil {
		return fail(err)
	}
	key := ed25519.NewKeyFromSeed(seed)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: end}, DNSNames: []string{end},
		// The clocks of members may differ before they are set; the code ends with the program.
		NotBefore: time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC), NotAfter: time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC),
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return fail(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		return fail(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(leaf)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}, pool, nil
}

// Ends of the connection, by the names in their certificates.
const (
	endFirst  = "first.director.internal"
	endJoiner = "joiner.director.internal"
)

func ends(code director.Secret) (first, joiner *tls.Config, err error) {
	f, fPool, err := badge(code, endFirst)
	if err != nil {
		return nil, nil, err
	}
	j, jPool, err := badge(code, endJoiner)
	if err != nil {
		return nil, nil, err
	}
	first = &tls.Config{
		Certificates: []tls.Certificate{f}, ClientCAs: jPool, ClientAuth: tls.RequireAndVerifyClientCert,
		MinVersion: tls.VersionTLS13, SessionTicketsDisabled: true,
	}
	joiner = &tls.Config{
		Certificates: []tls.Certificate{j}, RootCAs: fPool, ServerName: endFirst, MinVersion: tls.VersionTLS13,
	}
	return first, joiner, nil
}

// Share answers members that join, who have the code, until all others have what they need or the context ends. It
// calls joined for each. schema is of the database that this director brings. Errors: not_found without a group, and
// the context's.
func (p Place) Share(
	ctx context.Context, l net.Listener, code director.Secret, schema string, joined func(netip.Addr),
) error {
	g, err := p.LoadGroup()
	if err != nil {
		return err
	}
	s, err := p.Load()
	if err != nil {
		return err
	}
	first, _, err := ends(code)
	if err != nil {
		return err
	}
	missing := map[netip.Addr]bool{}
	for _, m := range g.others(s.Address.Addr()) {
		missing[m] = true
	}
	var (
		mu    sync.Mutex // guards missing and joined
		turns sync.WaitGroup
		all   = make(chan struct{})
	)
	defer turns.Wait()
	defer context.AfterFunc(ctx, func() { _ = l.Close() })()
	for {
		conn, err := l.Accept()
		if err != nil {
			select {
			case <-all:
				return nil
			default:
				return errors.Join(director.Errorf(director.KindUnavailable, opShare, "%w", err), ctx.Err())
			}
		}
		turns.Go(func() {
			defer conn.Close()
			from, err := p.group().answer(conn, first, g, schema)
			if err != nil {
				return // a scan of ports, or a wrong code: the other end says it
			}
			mu.Lock()
			defer mu.Unlock()
			joined(from)
			if delete(missing, from); len(missing) == 0 {
				close(all)
				_ = l.Close()
			}
		})
	}
}

// answer answers one member, and returns its address.
func (p groupFiles) answer(conn net.Conn, config *tls.Config, g Group, schema string) (netip.Addr, error) {
	if err := conn.SetDeadline(time.Now().Add(shareTurn)); err != nil {
		return netip.Addr{}, err
	}
	secure := tls.Server(conn, config)
	var q question
	if err := json.NewDecoder(io.LimitReader(secure, 4096)).Decode(&q); err != nil {
		return netip.Addr{}, err
	}
	from, err := netip.ParseAddrPort(conn.RemoteAddr().String())
	if err != nil {
		return netip.Addr{}, err
	}
	a, err := p.handOver(q, from.Addr().Unmap(), g, schema)
	if err != nil {
		a = answer{Refused: director.MessageOf(err), Hint: director.HintOf(err)}
	}
	return q.Own, errors.Join(err, json.NewEncoder(secure).Encode(a), secure.CloseWrite(), ended(secure))
}

// ended waits until the other end has closed the connection: it has read all then.
func ended(conn net.Conn) error {
	_, err := io.Copy(io.Discard, io.LimitReader(conn, 1))
	return err
}

func (p groupFiles) handOver(q question, from netip.Addr, g Group, schema string) (answer, error) {
	if !slices.Contains(g.Members, q.Own) || q.Own != from {
		return answer{}, director.Errorf(
			director.KindForbidden, opShare, "%s is not a member of the group, or asks from %s", q.Own, from,
		).WithHint("name it on the first appliance: director setup group -help")
	}
	if q.Schema != schema {
		return answer{}, director.Errorf(
			director.KindConflict, opShare,
			"the appliance that joins brings version %.20q of the database, and this one %q",
			q.Schema, schema,
		).WithHint("upgrade the older one first: directorctl appliance upgrade")
	}
	files, err := p.collect()
	return answer{Group: g, Files: files}, err
}

// askToJoin asks a member for what this appliance needs to join its group.
func askToJoin(
	ctx context.Context, dialer net.Dialer, target string, code director.Secret, q question,
) (answer, error) {
	var a answer
	_, joiner, err := ends(code)
	if err != nil {
		return a, err
	}
	ctx, cancel := context.WithTimeout(ctx, shareTurn)
	defer cancel()
	conn, err := (&tls.Dialer{NetDialer: &dialer, Config: joiner}).DialContext(ctx, "tcp", target)
	if err != nil {
		return a, director.Errorf(director.KindUnavailable, opShare, "%s does not answer: %w", target, err).
			WithHint("run director setup share there, and compare the code: each run writes a new one")
	}
	defer conn.Close()
	if deadline, ok := ctx.Deadline(); ok {
		err = conn.SetDeadline(deadline)
	}
	if err == nil {
		err = json.NewEncoder(conn).Encode(q)
	}
	if err == nil {
		err = json.NewDecoder(io.LimitReader(conn, mostAnswer)).Decode(&a)
	}
	if err != nil {
		return a, director.Errorf(director.KindUnavailable, opShare, "%s broke off: %w", target, err).
			WithHint("compare the code, and try again: nothing has changed here")
	}
	if a.Refused != "" {
		return a, director.Errorf(director.KindConflict, opShare, "%s refused: %s", target, printable(a.Refused)).
			WithHint("%s", printable(a.Hint))
	}
	return a, nil
}
