package appliance

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/director-kaas/kaas/director"
)

// Terminal asks a person.
type Terminal interface {
	io.Writer
	// Line returns one line without its end. Errors: io.EOF.
	Line(prompt string) (string, error)
	// Password is Line without an echo.
	Password(prompt string) (string, error)
}

// asked are the properties that the form asks for: those that a person can type.
var asked = []string{"hostname", "address", "gateway", "dns", "search", "ntp", "admin_password", "ssh_keys"}

// Form asks a person for the properties until they are right and confirmed, and returns the setup. given are the values
// that it begins with, and problem is why they could not be used; it may be nil. Errors: those of the terminal.
func Form(t Terminal, given map[string]string, problem error) (Setup, error) {
	values := maps.Clone(given)
	if values == nil {
		values = map[string]string{}
	}
	say(t, "\nThis director is not set up yet. Answer the questions; Enter keeps what is in brackets, - clears it.\n\n")
	wrong := asked
	if problem != nil {
		say(t, "%s", Explain(problem))
		if fields := director.FieldsOf(problem); len(fields) > 0 {
			wrong = nil
			for _, f := range fields {
				if key, _, _ := strings.Cut(f.Path, "["); slices.Contains(asked, key) {
					wrong = append(wrong, key)
				} else {
					delete(values, f.Path) // cannot be typed: the form leaves it out
				}
			}
		}
	}
	for {
		if err := ask(t, values, wrong); err != nil {
			return Setup{}, err
		}
		s, err := Read(values)
		if err != nil {
			say(t, "\n%s\n", Explain(err))
			wrong = nil
			for _, f := range director.FieldsOf(err) {
				key, _, _ := strings.Cut(f.Path, "[")
				wrong = append(wrong, key)
			}
			continue
		}
		say(t, "\n%s", s.summary())
		answer, err := t.Line("Is this right? (yes, or no to answer again): ")
		if err != nil {
			return Setup{}, err
		}
		if strings.EqualFold(strings.TrimSpace(answer), "yes") || strings.EqualFold(strings.TrimSpace(answer), "y") {
			return s, nil
		}
		wrong = asked
	}
}

func ask(t Terminal, values map[string]string, keys []string) error {
	for _, p := range Properties() {
		if !slices.Contains(keys, p.Key) || !slices.Contains(asked, p.Key) ||
			p.Key == "gateway" && (values["address"] == "" || strings.EqualFold(values["address"], "dhcp")) {
			continue
		}
		answer, err := one(t, p, values[p.Key])
		if err != nil {
			return err
		}
		values[p.Key] = answer
		if p.Key == "address" && (answer == "" || strings.EqualFold(answer, "dhcp")) {
			delete(values, "gateway")
		}
		if p.Key == "admin_password" && answer != "" {
			delete(values, "admin_password_hash")
		}
	}
	return nil
}

// one asks for one property.
func one(t Terminal, p Property, was string) (string, error) {
	say(t, "  %s\n", p.Help)
	if !p.Secret {
		prompt := p.Label
		if was != "" {
			prompt += " [" + printable(was) + "]"
		}
		answer, err := t.Line(prompt + ": ")
		answer = strings.TrimSpace(answer)
		switch answer {
		case "":
			return was, err
		case "-":
			return "", err
		}
		return answer, err
	}
	for {
		first, err := t.Password(p.Label + ": ")
		if err != nil || first == "" {
			return was, err
		}
		again, err := t.Password(p.Label + ", again: ")
		if err != nil {
			return "", err
		}
		if first == again {
			return first, nil
		}
		say(t, "  The two differ. Once more.\n")
	}
}

// summary is what a person confirms.
func (s Setup) summary() string {
	var b strings.Builder
	line := func(label, value string) {
		if value == "" {
			value = "none"
		}
		fmt.Fprintf(&b, "  %-20s %s\n", label, value)
	}
	line("Host name", s.Hostname)
	if s.Address.IsValid() {
		line("Address", s.Address.String())
		gateway := ""
		if s.Gateway.IsValid() {
			gateway = s.Gateway.String()
		}
		line("Gateway", gateway)
	} else {
		line("Address", "by DHCP")
	}
	var dns []string
	for _, d := range s.DNS {
		dns = append(dns, d.String())
	}
	line("DNS servers", strings.Join(dns, ", "))
	line("DNS search domains", strings.Join(s.Search, ", "))
	line("NTP servers", strings.Join(s.NTP, ", "))
	line("SSH public keys", fmt.Sprintf("%d", len(s.SSHKeys)))
	return b.String()
}

// Explain says what is wrong and what to do, for a terminal.
func Explain(err error) string {
	var b strings.Builder
	msg := director.MessageOf(err)
	fmt.Fprintf(&b, "%s%s.\n", strings.ToUpper(msg[:1]), msg[1:])
	for _, f := range director.FieldsOf(err) {
		fmt.Fprintf(&b, "  %s\n", f)
	}
	if hint := director.HintOf(err); hint != "" {
		fmt.Fprintf(&b, "Next: %s.\n", hint)
	}
	return b.String()
}

func say(w io.Writer, format string, args ...any) { _, _ = fmt.Fprintf(w, format, args...) }
