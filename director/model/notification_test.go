package model

import (
	"testing"
	"time"
)

func TestQuietUntil(t *testing.T) {
	t.Parallel()
	at := func(text string) time.Time {
		t.Helper()
		out, err := time.Parse(time.RFC3339, text)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	night := QuietTime{From: "22:00", To: "07:00", Zone: "UTC"}
	berlin := QuietTime{From: "22:00", To: "07:00", Zone: "Europe/Berlin"}
	weekend := []QuietTime{
		{From: "18:00", To: "18:00", Zone: "UTC", Days: []string{"fri", "sat"}},
		{From: "18:00", To: "07:00", Zone: "UTC", Days: []string{"sun"}},
	}
	for name, c := range map[string]struct {
		quiet    []QuietTime
		at, want string
	}{
		"none":                        {nil, "2026-03-02T23:00:00Z", ""},
		"before":                      {[]QuietTime{night}, "2026-03-02T21:59:59Z", ""},
		"at its beginning":            {[]QuietTime{night}, "2026-03-02T22:00:00Z", "2026-03-03T07:00:00Z"},
		"after midnight":              {[]QuietTime{night}, "2026-03-03T06:59:00Z", "2026-03-03T07:00:00Z"},
		"at its end":                  {[]QuietTime{night}, "2026-03-03T07:00:00Z", ""},
		"in a zone":                   {[]QuietTime{berlin}, "2026-03-02T21:00:00Z", "2026-03-03T06:00:00Z"},
		"over the begin of summer":    {[]QuietTime{berlin}, "2026-03-28T22:30:00Z", "2026-03-29T05:00:00Z"},
		"over the end of summer":      {[]QuietTime{berlin}, "2026-10-24T22:30:00Z", "2026-10-25T06:00:00Z"},
		"a weekend":                   {weekend, "2026-03-06T19:00:00Z", "2026-03-09T07:00:00Z"},
		"a day that is not one of it": {weekend, "2026-03-05T19:00:00Z", ""},
		"the first of two": {
			[]QuietTime{{From: "01:00", To: "02:00", Zone: "UTC"}, {From: "02:00", To: "03:00", Zone: "UTC"}},
			"2026-03-02T01:30:00Z", "2026-03-02T03:00:00Z",
		},
	} {
		n := Notification{Quiet: c.quiet}
		got, want := n.QuietUntil(at(c.at)), time.Time{}
		if c.want != "" {
			want = at(c.want)
		}
		if !got.Equal(want) {
			t.Errorf("%s: %v, and should be %v", name, got, want)
		}
	}
}
