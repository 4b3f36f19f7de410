package model

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Size is a number of bytes, written with a binary unit: 512MiB, 4GiB, 1TiB.
type Size int64

// The units of Size.
const (
	MiB Size = 1 << 20
	GiB Size = 1 << 30
	TiB Size = 1 << 40
)

var sizeUnits = []struct {
	suffix string
	unit   Size
}{{"TiB", TiB}, {"GiB", GiB}, {"MiB", MiB}, {"Ti", TiB}, {"Gi", GiB}, {"Mi", MiB}}

// ParseSize reads a size such as 4GiB or 4Gi. A number without a unit is refused: a later reader would have to guess
// it.
func ParseSize(s string) (Size, error) {
	for _, u := range sizeUnits {
		digits, ok := strings.CutSuffix(s, u.suffix)
		if !ok {
			continue
		}
		n, err := strconv.ParseInt(strings.TrimSpace(digits), 10, 64)
		if err != nil || n < 0 || n > int64(1<<62)/int64(u.unit) {
			break
		}
		return Size(n) * u.unit, nil
	}
	return 0, fmt.Errorf("%q is not a size; write a whole number with MiB, GiB or TiB, such as 4GiB", s)
}

// String renders the largest unit that divides s.
func (s Size) String() string {
	for _, u := range sizeUnits[:3] {
		if s != 0 && s%u.unit == 0 {
			return strconv.FormatInt(int64(s/u.unit), 10) + u.suffix
		}
	}
	return strconv.FormatInt(int64(s), 10)
}

// MarshalText renders s as String does, for whole MiB; zero is empty.
func (s Size) MarshalText() ([]byte, error) {
	if s == 0 {
		return nil, nil
	}
	if s%MiB != 0 {
		return nil, fmt.Errorf("model: size %d is not a whole number of MiB", int64(s))
	}
	return []byte(s.String()), nil
}

// UnmarshalText reads what ParseSize takes; empty is zero.
func (s *Size) UnmarshalText(b []byte) error {
	if len(b) == 0 {
		*s = 0
		return nil
	}
	v, err := ParseSize(string(b))
	if err == nil {
		*s = v
	}
	return err
}

// Duration is a time span written as Go writes it: 250ms, 30s, 5m.
type Duration time.Duration

// String renders d as Go does.
func (d Duration) String() string { return time.Duration(d).String() }

// MarshalText renders d as String does; zero is empty.
func (d Duration) MarshalText() ([]byte, error) {
	if d == 0 {
		return nil, nil
	}
	return []byte(d.String()), nil
}

// UnmarshalText reads what time.ParseDuration takes; empty is zero.
func (d *Duration) UnmarshalText(b []byte) error {
	if len(b) == 0 {
		*d = 0
		return nil
	}
	v, err := time.ParseDuration(string(b))
	if err != nil {
		return fmt.Errorf("%q is not a duration; write 250ms, 30s or 5m", b)
	}
	*d = Duration(v)
	return nil
}
