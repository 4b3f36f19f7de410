package director

import "log/slog"

const redacted = "<secret>"

// Secret is a string that never prints itself: fmt, slog and the text and JSON encoders all see "<secret>". Reveal is
// the one way to the value, so that every use can be found by name.
type Secret string

// Reveal returns the value.
func (s Secret) Reveal() string { return string(s) }

// String returns a placeholder.
func (s Secret) String() string { return redacted }

// GoString returns a placeholder for %#v.
func (s Secret) GoString() string { return redacted }

// LogValue returns a placeholder for slog.
func (s Secret) LogValue() slog.Value { return slog.StringValue(redacted) }

// MarshalText returns a placeholder for every encoder.
func (s Secret) MarshalText() ([]byte, error) { return []byte(redacted), nil }
