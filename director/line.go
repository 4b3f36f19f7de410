package director

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// CheckLine tells why a text cannot be a value in files that are written for nodes: it has more than one line, control
// characters, or what Ansible would take for a template and evaluate on the director.
func CheckLine(text string) error {
	if err := CheckPrintable(text, ""); err != nil {
		return err
	}
	for _, open := range []string{"{{", "{%", "{#"} {
		if strings.Contains(text, open) {
			return fmt.Errorf("has %s, which begins a template", open)
		}
	}
	return nil
}

// CheckPrintable tells why a text is not printable: it is not UTF-8, or has control characters other than the allowed
// ones.
func CheckPrintable(text, allowed string) error {
	if !utf8.ValidString(text) {
		return fmt.Errorf("is not UTF-8")
	}
	for _, c := range text {
		if (unicode.IsControl(c) || c == '\u2028' || c == '\u2029') && !strings.ContainsRune(allowed, c) {
			return fmt.Errorf("has the control character %U", c)
		}
	}
	return nil
}
