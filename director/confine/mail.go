package confine

import (
	"fmt"
	"net/mail"
)

const mostAddress = 254 // bytes of an address (RFC 5321, 4.5.3.1.3)

// CheckMail returns what is wrong with the address of a mailbox. It wants a bare one, such as ann@example.org, in
// ASCII: nothing in it can begin another line or another header.
func CheckMail(a string) error {
	if len(a) > mostAddress {
		return fmt.Errorf("the address has %d bytes, and may have %d", len(a), mostAddress)
	}
	for _, r := range a {
		if r <= ' ' || r > '~' {
			return fmt.Errorf("the address %q has characters other than those of ASCII without spaces", a)
		}
	}
	p, err := mail.ParseAddress(a)
	if err != nil || p.Name != "" || p.Address != a {
		return fmt.Errorf("%q is not a bare address such as ann@example.org", a)
	}
	return nil
}
