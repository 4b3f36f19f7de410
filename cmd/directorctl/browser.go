package main

import (
	"context"
	"os"
	"os/exec"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/client"
)

// loginInBrowser has a person log in at the console, and keeps the token of the session that this program gets.
func (a *accountCommands) loginInBrowser(ctx context.Context, path string, c config, device bool) error {
	anonymous, err := a.anonymous(c, "")
	if err != nil {
		return err
	}
	defer anonymous.Close()
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	var token director.Secret
	if device {
		token, err = anonymous.LoginWithDevice(ctx, host, func(address, code string, until time.Time) {
			say(a.err, "Open %s in a browser, and type this code there: %s\n", address, code)
			say(a.err, "Waiting until %s.\n", until.Local().Format("15:04"))
		})
	} else {
		token, err = anonymous.LoginWithBrowser(ctx, host, func(address string) {
			say(a.err, "Log in at this address; it works in a browser on this machine alone:\n%s\n", address)
			openBrowser(ctx, address)
		})
	}
	if err != nil {
		return err
	}
	api, err := a.anonymous(c, token)
	if err != nil {
		return err
	}
	defer api.Close()
	return a.keepLogin(ctx, api, path, c, token)
}

func (a *accountCommands) keepLogin(
	ctx context.Context, api *client.Client, path string, c config, token director.Secret,
) error {
	me, err := api.Me(ctx)
	if err != nil {
		return err
	}
	c.User = me.User
	if err := saveConfig(path, c, token); err != nil {
		return err
	}
	say(a.out, "Logged in to %s as %s (%s) until %s.\n", c.Server, me.User, me.Role, minute(me.ExpiresAt))
	return nil
}

// openBrowser opens the address if this machine has what does so. Otherwise the person does.
func openBrowser(ctx context.Context, address string) {
	if os.Getenv("DISPLAY") == "" && os.Getenv("WAYLAND_DISPLAY") == "" {
		return
	}
	name, err := exec.LookPath("xdg-open")
	if err != nil {
		return
	}
	cmd := exec.CommandContext(context.WithoutCancel(ctx), name, address)
	if cmd.Start() == nil {
		go func() { _ = cmd.Wait() }() // the browser may stay
	}
}
