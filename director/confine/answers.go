package confine

import (
	"io"
	"net/http"
)

// Answers ends the answers that next brings after so many bytes. What reads them sees the end of the text.
func Answers(next http.RoundTripper, most int64) http.RoundTripper {
	return answers{next, most}
}

type answers struct {
	next http.RoundTripper
	most int64
}

func (a answers) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := a.next.RoundTrip(r)
	if err == nil {
		answer.Body = struct {
			io.Reader
			io.Closer
		}{io.LimitReader(answer.Body, a.most), answer.Body}
	}
	return answer, err
}
