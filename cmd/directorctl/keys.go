package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/client"
	"github.com/director-kaas/kaas/director/wire"
)

// keyCommands show and replace the keys that requests are signed with, of hooks or of notifications.
type keyCommands struct {
	*receiverCommands
	names  func(context.Context, *client.Client, []string) []string
	arg    string // such as HOOK
	of     string // such as a hook
	keys   func(*client.Client, context.Context, string) (wire.HookKeys, error)
	secret func(*client.Client, context.Context, string, director.Secret) (wire.HookKeys, error)
	rotate func(*client.Client, context.Context, string) (wire.HookKeys, error)
}

func (k keyCommands) showCommand() *cobra.Command {
	form, secret, passwordFile := formTable, false, ""
	cmd := &cobra.Command{
		Use: "key " + k.arg, Short: "Show the keys that verify the requests of " + k.of, Args: exact(k.arg),
		Long: "Show the public keys that verify the requests of " + k.of + ", the current one first. With the " +
			"signature hmac, a secret is\nshared with the receiver instead: --secret shows it, and needs your " +
			"password.",
		ValidArgsFunction: k.complete(0, k.names),
		RunE: k.connected(func(cmd *cobra.Command, api *client.Client, args []string) error {
			v, err := k.keys(api, cmd.Context(), args[0])
			if secret && err == nil {
				var password director.Secret
				if password, err = k.password(passwordFile, "Your password: "); err == nil {
					v, err = k.secret(api, cmd.Context(), args[0], password)
				}
			}
			if err != nil {
				return err
			}
			return k.showKeys(form, v)
		}),
	}
	f := cmd.Flags()
	f.BoolVar(&secret, "secret", false, "also show the shared secret of hmac")
	f.StringVar(
		&passwordFile, "password-file", "", "file that holds your password; - is the standard input (default: ask)",
	)
	outputFlag(cmd, &form)
	return cmd
}

func (k keyCommands) showKeys(form string, v wire.HookKeys) error {
	return k.show(form, v, func() {
		table(k.out, "ALGORITHM KEY ENDS", func(row func(...string)) {
			for _, one := range v.Items {
				ends := "-"
				if one.EndsAt != nil {
					ends = one.EndsAt.Format(time.RFC3339)
				}
				key := one.Public + one.Secret
				if key == "" {
					key = "shared; see --secret"
				}
				row(one.Algorithm, key, ends)
			}
		})
	})
}

func (k keyCommands) rotateCommand() *cobra.Command {
	form := formTable
	cmd := &cobra.Command{
		Use: "rotate-key " + k.arg, Short: "Make another key for " + k.of, Args: exact(k.arg),
		Long: "Make another key for " + k.of + ". Requests have two signatures for a day, by the new key and by the " +
			"former one: give receivers the new\none meanwhile.",
		ValidArgsFunction: k.complete(0, k.names),
		RunE: k.connected(func(cmd *cobra.Command, api *client.Client, args []string) error {
			v, err := k.rotate(api, cmd.Context(), args[0])
			if err != nil {
				return err
			}
			return k.showKeys(form, v)
		}),
	}
	outputFlag(cmd, &form)
	return cmd
}
