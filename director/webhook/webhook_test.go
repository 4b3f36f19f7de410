package webhook_test

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/director-kaas/kaas/director/confine"
	"github.com/director-kaas/kaas/director/webhook"
	"github.com/director-kaas/kaas/director/webhook/webhooktest"
)

// The vector of Standard Webhooks' own reference implementations.
func TestSharedSecretsSignAsOthersDo(t *testing.T) {
	t.Parallel()
	const key = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	at, body := time.Unix(1614265330, 0), []byte(`{"test": 2432232314}`)
	h := http.Header{}
	h.Set("Webhook-Id", "msg_p5jXN8AQM9LWM0D4loKWxJek")
	h.Set("Webhook-Timestamp", "1614265330")
	h.Set("Webhook-Signature", "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=")
	if err := webhook.Verify(key, h, body, at); err != nil {
		t.Error(err)
	}
	h.Set("Webhook-Signature", "v1,h0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=")
	if err := webhook.Verify(key, h, body, at); err == nil {
		t.Error("another signature is taken")
	}
}

func TestVerify(t *testing.T) {
	t.Parallel()
	now, body := time.Unix(1_800_000_000, 0), []byte(`{"a":1}`)
	for _, pair := range []bool{true, false} {
		old, oldPublic, err := webhook.NewKey(pair)
		if err != nil {
			t.Fatal(err)
		}
		key, public, err := webhook.NewKey(pair)
		if err != nil {
			t.Fatal(err)
		}
		if !pair {
			oldPublic, public = old.Shared(), key.Shared()
		}
		header := func() http.Header {
			h := http.Header{}
			h.Set("Webhook-Id", "m1")
			h.Set("Webhook-Timestamp", "1800000000")
			h.Set("Webhook-Signature", key.Sign("m1", now, body)+" "+old.Sign("m1", now, body))
			return h
		}
		for name, test := range map[string]struct {
			change func(http.Header)
			key    string
			body   string
			at     time.Time
			ok     bool
		}{
			"by the new key":  {func(http.Header) {}, public, string(body), now, true},
			"by the old key":  {func(http.Header) {}, oldPublic, string(body), now, true},
			"a little later":  {func(http.Header) {}, public, string(body), now.Add(4 * time.Minute), true},
			"too late":        {func(http.Header) {}, public, string(body), now.Add(6 * time.Minute), false},
			"from the future": {func(http.Header) {}, public, string(body), now.Add(-6 * time.Minute), false},
			"another body":    {func(http.Header) {}, public, `{"a":2}`, now, false},
			"another id": {
				func(h http.Header) { h.Set("Webhook-Id", "m2") }, public,
				string(body), now, false,
			},
			"another time": {
				func(h http.Header) { h.Set("Webhook-Timestamp", "1800000001") }, public,
				string(body), now, false,
			},
			"no signature": {
				func(h http.Header) { h.Del("Webhook-Signature") }, public,
				string(body), now, false,
			},
			"no id": {func(h http.Header) { h.Del("Webhook-Id") }, public, string(body), now, false},
			"no time": {
				func(h http.Header) { h.Del("Webhook-Timestamp") }, public,
				string(body), now, false,
			},
			"a signature in pieces": {
				func(h http.Header) { h.Set("Webhook-Signature", "v1 , v1a,%%% ,,") }, public,
				string(body), now, false,
			},
			"a key in pieces": {func(http.Header) {}, "whpk_AAAA", string(body), now, false},
		} {
			h := header()
			test.change(h)
			if err := webhook.Verify(test.key, h, []byte(test.body), test.at); (err == nil) != test.ok {
				t.Errorf("pair %v, %s: %v", pair, name, err)
			}
		}
	}
}

func TestEventsHaveABound(t *testing.T) {
	t.Parallel()
	e := webhook.Event{
		ID: "1", Source: "https://d", Type: "x", Time: time.Unix(1, 0).UTC(),
		Data: map[string]string{"a": "b"},
	}
	b, err := e.Encode()
	want := `{"specversion":"1.0","id":"1","source":"https://d","type":"x","time":"1970-01-01T00:00:01Z",` +
		`"datacontenttype":"application/json","data":{"a":"b"}}`
	if err != nil || string(b) != want {
		t.Errorf("%s, %v", b, err)
	}
	e.Data = strings.Repeat("x", webhook.MostEvent)
	if _, err := e.Encode(); err == nil {
		t.Error("an event of more than 20 kB is encoded")
	}
}

// loopback allows one address: a hook on the director's own machine has to be named.
func loopback(address string) confine.Networks {
	return confine.Networks{netip.PrefixFrom(netip.MustParseAddr(address), 32)}
}

func request(t *testing.T) (webhook.Request, string) {
	t.Helper()
	key, public, err := webhook.NewKey(true)
	if err != nil {
		t.Fatal(err)
	}
	return webhook.Request{ID: "m1", Body: []byte(`{"a":1}`), Keys: []webhook.Key{key}, At: time.Now()}, public
}

func TestMutualTLS(t *testing.T) {
	t.Parallel()
	a := webhooktest.NewAuthority(t)
	e := webhooktest.Start(t, "127.0.0.1:0", a, true, webhooktest.JSON(200, `{"decision":"continue","reason":"fine"}`))
	r, public := request(t)
	to := webhook.Endpoint{URL: e.URL, Allow: loopback("127.0.0.1"), Roots: a.Roots(), Timeout: 20 * time.Second}
	if o := to.Send(t.Context(), r); o.Received || len(e.Got()) != 0 {
		t.Errorf("without a certificate: %+v", o)
	}
	pair, err := tls.X509KeyPair(a.Issue(t))
	if err != nil {
		t.Fatal(err)
	}
	to.Client = &pair
	o := to.Send(t.Context(), r)
	if !o.Received || o.Status != 200 || o.Answer != (webhook.Answer{Decision: "continue", Reason: "fine"}) {
		t.Errorf("with a certificate: %+v", o)
	}
	if got := e.Got(); len(got) != 1 || webhook.Verify(public, got[0].Header, got[0].Body, time.Now()) != nil {
		t.Errorf("it got %+v", got)
	}
	to.Roots = webhooktest.NewAuthority(t).Roots()
	if o := to.Send(t.Context(), r); o.Received || len(e.Got()) != 1 {
		t.Errorf("a server with a certificate of another authority: %+v", o)
	}
}

func TestAnswers(t *testing.T) {
	t.Parallel()
	a := webhooktest.NewAuthority(t)
	redirected := webhooktest.Start(t, "127.0.0.1:0", a, false, webhooktest.JSON(200, `{"decision":"continue"}`))
	header := func(status int, key, value string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set(key, value)
			w.WriteHeader(status)
		}
	}
	for name, test := range map[string]struct {
		answer http.HandlerFunc
		want   webhook.Outcome
	}{
		"continue": {
			webhooktest.JSON(200, `{"decision":"continue"}`),
			webhook.Outcome{Status: 200, Received: true, Answer: webhook.Answer{Decision: "continue"}},
		},
		"refuse": {
			webhooktest.JSON(200, `{"decision":"refuse","reason":"a\nb"}`),
			webhook.Outcome{Status: 200, Received: true, Answer: webhook.Answer{Decision: "refuse", Reason: "a b"}},
		},
		"wait": {webhooktest.JSON(200, `{"decision":"wait","retryAfter":7}`), webhook.Outcome{
			Status: 200, Received: true, Retry: 7 * time.Second,
			Answer: webhook.Answer{Decision: "wait", RetryAfter: 7},
		}},
		"wait for ever": {webhooktest.JSON(200, `{"decision":"wait","retryAfter":9999999999}`), webhook.Outcome{
			Status: 200, Received: true, Retry: 24 * time.Hour,
			Answer: webhook.Answer{Decision: "wait", RetryAfter: 9999999999},
		}},
		"later": {
			webhooktest.JSON(202, `{"decision":"continue"}`),
			webhook.Outcome{Status: 202, Received: true},
		},
		"no decision": {
			webhooktest.JSON(200, `{}`),
			webhook.Outcome{Status: 200, Received: true, Problem: `the decision "" is not continue, wait or refuse`},
		},
		"no JSON": {
			webhooktest.JSON(200, `yes`),
			webhook.Outcome{Status: 200, Received: true, Problem: "the answer is not JSON with a decision"},
		},
		"a page": {header(200, "Content-Type", "text/html"), webhook.Outcome{Status: 200, Received: true}},
		"1 MB": {
			webhooktest.JSON(200, `{"reason":"`+strings.Repeat("x", 1<<20)+`","decision":"continue"}`),
			webhook.Outcome{Status: 200, Problem: "the answer is longer than 64 KiB"},
		},
		"gone": {
			header(410, "X", "y"),
			webhook.Outcome{Status: 410, Gone: true, Problem: "the endpoint says that it is gone (410)"},
		},
		"busy": {header(503, "Retry-After", "120"), webhook.Outcome{
			Status: 503, Retry: 2 * time.Minute,
			Problem: "the status is 503",
		}},
		"a redirect": {
			header(307, "Location", redirected.URL),
			webhook.Outcome{Status: 307, Problem: "it redirects (307), which is not followed"},
		},
		"many headers": {header(200, "X-Long", strings.Repeat("x", 1<<20)), webhook.Outcome{}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := webhooktest.Start(t, "127.0.0.1:0", a, false, test.answer)
			r, _ := request(t)
			to := webhook.Endpoint{
				URL: e.URL, Allow: loopback("127.0.0.1"), Roots: a.Roots(),
				Timeout: 20 * time.Second,
			}
			o := to.Send(t.Context(), r)
			if name == "many headers" {
				o.Problem = ""
			}
			if o != test.want {
				t.Errorf("%+v\nand should be\n%+v", o, test.want)
			}
		})
	}
	t.Cleanup(func() {
		if n := redirected.Connections(); n != 0 {
			t.Errorf("a redirect was followed %d times", n)
		}
	})
}

func TestAnEndpointThatHangs(t *testing.T) {
	t.Parallel()
	a := webhooktest.NewAuthority(t)
	e := webhooktest.Start(t, "127.0.0.1:0", a, false,
		func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	r, _ := request(t)
	to := webhook.Endpoint{URL: e.URL, Allow: loopback("127.0.0.1"), Roots: a.Roots(), Timeout: time.Second}
	if o := to.Send(t.Context(), r); o.Received || o.Problem != "no answer within 1s" {
		t.Errorf("%+v", o)
	}
}

// What is allowed is looked at on the address that a name leads to.
func TestWhereRequestsMayGo(t *testing.T) {
	a := webhooktest.NewAuthority(t)
	e := webhooktest.Start(t, "127.0.0.1:0", a, false, webhooktest.JSON(200, `{"decision":"continue"}`))
	own := netip.MustParseAddrPort(e.Listener.Addr().String())
	t.Setenv("HTTPS_PROXY", "http://127.0.0.9:1") // no request may go there
	t.Setenv("https_proxy", "http://127.0.0.9:1")
	r, _ := request(t)
	for name, test := range map[string]struct {
		url   string
		allow confine.Networks
		own   []netip.AddrPort
		ok    bool
	}{
		"a range of its own": {e.URL, loopback("127.0.0.1"), nil, true},
		"private addresses":  {e.URL, confine.Private(), nil, false},
		"everything":         {e.URL, confine.Networks{netip.MustParsePrefix("0.0.0.0/0")}, nil, false},
		"nothing":            {e.URL, nil, nil, false},
		"the link's addresses": {
			"https://169.254.169.254/latest",
			confine.Networks{netip.MustParsePrefix("0.0.0.0/0")},
			nil, false,
		},
		"the director's own listener": {e.URL, loopback("127.0.0.1"), []netip.AddrPort{own}, false},
		"one on all addresses": {
			e.URL, loopback("127.0.0.1"),
			[]netip.AddrPort{netip.AddrPortFrom(netip.IPv4Unspecified(), own.Port())},
			false,
		},
		"one on all addresses of IPv6": {
			e.URL, loopback("127.0.0.1"),
			[]netip.AddrPort{netip.AddrPortFrom(netip.IPv6Unspecified(), own.Port())},
			false,
		},
		"another port of the director's": {
			e.URL, loopback("127.0.0.1"),
			[]netip.AddrPort{netip.AddrPortFrom(own.Addr(), 1)},
			true,
		},
	} {
		before := e.Connections()
		o := webhook.Endpoint{
			URL: test.url, Allow: test.allow, Own: test.own, Roots: a.Roots(),
			Timeout: 20 * time.Second,
		}.
			Send(t.Context(), r)
		if o.Received != test.ok || o.Blocked == test.ok {
			t.Errorf("%s: %+v", name, o)
		}
		if !test.ok && e.Connections() != before {
			t.Errorf("%s: a connection was made", name)
		}
	}
}

// dns is a server that answers each question for an address by the next answer.
func dns(t *testing.T, answers ...[]string) *net.Resolver {
	t.Helper()
	conn, err := (&net.ListenConfig{}).ListenPacket(t.Context(), "udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	var asked atomic.Int64
	go func() {
		buf := make([]byte, 512)
		for {
			n, from, err := conn.ReadFrom(buf)
			if err != nil {
				return
			}
			var m dnsmessage.Message
			if m.Unpack(buf[:n]) != nil || len(m.Questions) != 1 {
				continue
			}
			m.Response, m.Authoritative, m.Additionals = true, true, nil
			if q := m.Questions[0]; q.Type == dnsmessage.TypeA {
				i := min(int(asked.Add(1)), len(answers)) - 1
				for _, a := range answers[i] {
					m.Answers = append(m.Answers, dnsmessage.Resource{
						Header: dnsmessage.ResourceHeader{Name: q.Name, Type: q.Type, Class: q.Class},
						Body:   &dnsmessage.AResource{A: netip.MustParseAddr(a).As4()},
					})
				}
			}
			if b, err := m.Pack(); err == nil {
				_, _ = conn.WriteTo(b, from)
			}
		}
	}()
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "udp", conn.LocalAddr().String())
	}}
}

// A name that leads elsewhere the second time, or to several addresses at once, leads nowhere that is not allowed.
func TestNamesThatAreRebound(t *testing.T) {
	t.Parallel()
	a := webhooktest.NewAuthority(t)
	good := webhooktest.Start(t, "127.0.0.2:0", a, false, webhooktest.JSON(200, `{"decision":"continue"}`))
	_, port, _ := net.SplitHostPort(good.Listener.Addr().String())
	victim := webhooktest.Start(t, "127.0.0.1:"+port, a, false, webhooktest.JSON(200, `{"decision":"continue"}`))
	r, _ := request(t)
	to := webhook.Endpoint{
		URL: "https://hook.test:" + port, Allow: loopback("127.0.0.2"), Roots: a.Roots(), Timeout: 20 * time.Second,
		Resolve: dns(t, []string{"127.0.0.2"}, []string{"127.0.0.1"}, []string{"127.0.0.1", "127.0.0.2"}),
	}
	if o := to.Send(t.Context(), r); !o.Received {
		t.Errorf("as it should be: %+v", o)
	}
	if o := to.Send(t.Context(), r); o.Received || !o.Blocked {
		t.Errorf("rebound: %+v", o)
	}
	if o := to.Send(t.Context(), r); !o.Received {
		t.Errorf("with one that is allowed: %+v", o)
	}
	if n := victim.Connections(); n != 0 || len(good.Got()) != 2 {
		t.Errorf("the victim got %d connections, and the endpoint %d requests", n, len(good.Got()))
	}
}
