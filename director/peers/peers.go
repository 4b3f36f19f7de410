// Package peers lets directors on one database show each other the logs of their runs, and give each other uploads. A
// director asks the one that has them, over TLS, with a proof that it has the sealing key.
package peers

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/director-kaas/kaas/director"
)

// Path is where a director answers its peers.
const Path = "/peer/v1/log"

const (
	scheme = "Director-Peer "
	// life is how long a proof is good. The clocks of directors may differ by as much.
	life = 5 * time.Minute
)

// What is asked.
const (
	wantLines  = "lines"
	wantSearch = "search"
	wantBytes  = "bytes"
)

// problem is an error on its way between directors.
type problem struct {
	Kind director.Kind `json:"kind"`
	Msg  string        `json:"msg"`
	Hint string        `json:"hint,omitempty"`
}

// proof is the header that proves to the instance that the request is from a director with the key: for this request
// to this instance alone, until it ends.
func proof(key []byte, instance, uri string, ends time.Time) string {
	at := strconv.FormatInt(ends.Unix(), 10)
	return scheme + at + "." + hex.EncodeToString(mac(key, instance, uri, at))
}

func mac(key []byte, instance, uri, at string) []byte {
	h := hmac.New(sha256.New, key)
	for _, part := range []string{"director-peer-1", http.MethodGet, instance, uri, at} {
		_, _ = h.Write([]byte(strconv.Itoa(len(part)) + ":" + part)) // never fails
	}
	return h.Sum(nil)
}

// proven reports whether the header is a proof for the request.
func proven(key []byte, instance, uri, header string, now time.Time) bool {
	text, ok := strings.CutPrefix(header, scheme)
	at, tag, dotted := strings.Cut(text, ".")
	given, err := hex.DecodeString(tag)
	ends, nerr := strconv.ParseInt(at, 10, 64)
	if !ok || !dotted || err != nil || nerr != nil || !hmac.Equal(given, mac(key, instance, uri, at)) {
		return false
	}
	left := time.Unix(ends, 0).Sub(now)
	return left > -life && left < 2*life
}
