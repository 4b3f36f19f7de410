// provider REDIRECT: a real OpenID Connect provider on loopback for tests in a browser. Its client may redirect to that
// address, and Ann of the group ops logs in with the password "right". It prints what a document has to say of it as
// one line of JSON, and ends with its standard input.
package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"

	"github.com/director-kaas/kaas/director/oidc/oidctest"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "provider:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("got %d arguments; say where it may redirect to, and no more", len(args))
	}
	s := oidctest.New(args[0])
	defer s.Close()
	s.Person("1", "Ann", "right", "ops")
	if err := json.NewEncoder(os.Stdout).Encode(map[string]string{
		"issuer": s.Issuer, "ca": string(s.CA), "client": oidctest.ClientID, "secret": oidctest.Secret,
	}); err != nil {
		return err
	}
	_, err := io.Copy(io.Discard, os.Stdin)
	return err
}
