package cloudinit

import (
	"bytes"
	"fmt"
	"regexp"
	"strings"

	"golang.org/x/crypto/ssh"

	"github.com/director-kaas/kaas/director"
)

// UserCA is an SSH authority whose certificates open the account of the guest's SSHUser.
type UserCA struct {
	Public     string   // as in authorized_keys
	Principals []string // a certificate has to have one of them
}

// Where the guest's SSH server finds whom to let in. Each file of the directory of principals is an account's: others
// accept no certificate.
const (
	userCAFile    = "/etc/ssh/kaas/user_ca.pub"
	principalsDir = "/etc/ssh/kaas/principals"
	sshdFile      = "/etc/ssh/sshd_config.d/10-kaas.conf"
)

var principal = regexp.MustCompile(`^[A-Za-z0-9._-]{1,128}$`)

// userCAProblems returns every place of the authority that is wrong.
func (g *Guest) userCAProblems() []director.Field {
	if g.UserCA == nil {
		return nil
	}
	var fields []director.Field
	_, _, options, rest, err := ssh.ParseAuthorizedKey([]byte(g.UserCA.Public))
	if err != nil || len(options) > 0 || len(bytes.TrimSpace(rest)) > 0 {
		fields = append(fields, director.Field{Path: "user_ca.public", Msg: "is not one SSH public key"})
	}
	if len(g.UserCA.Principals) == 0 {
		fields = append(fields, director.Field{Path: "user_ca.principals", Msg: "is empty: no one could log in"})
	}
	for i, p := range g.UserCA.Principals {
		if !principal.MatchString(p) {
			fields = append(fields, director.Field{
				Path: fmt.Sprintf("user_ca.principals[%d]", i),
				Msg:  fmt.Sprintf("%q is not 1 to 128 letters, digits, dots and dashes", p),
			})
		}
	}
	return fields
}

// userCAFiles tell the guest's SSH server to trust the authority. cloud-init writes them before the server starts.
func (g *Guest) userCAFiles() []file {
	if g.UserCA == nil {
		return nil
	}
	return []file{
		newFile(userCAFile, "0644", "root:root", []byte(strings.TrimSpace(g.UserCA.Public)+"\n")),
		newFile(principalsDir+"/"+g.SSHUser, "0644", "root:root", []byte(strings.Join(g.UserCA.Principals, "\n")+"\n")),
		newFile(
			sshdFile, "0644", "root:root",
			[]byte("TrustedUserCAKeys "+userCAFile+"\nAuthorizedPrincipalsFile "+principalsDir+"/%u\n"),
		),
	}
}
