package main

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/whole"
)

// config is what a login leaves for the commands after it. The token lies in a file of its own.
type config struct {
	Server      string `yaml:"server"`
	User        string `yaml:"user,omitempty"`
	CA          string `yaml:"ca,omitempty"`          // PEM
	Fingerprint string `yaml:"fingerprint,omitempty"` // replaces ca
	TokenFile   string `yaml:"token_file,omitempty"`  // relative to the config's directory
}

// configPath is where the config lies: the flag, $DIRECTOR_CONFIG, or director/config.yaml in the user's config
// directory.
func configPath(flag string) (string, error) {
	if flag != "" {
		return flag, nil
	}
	if env := os.Getenv("DIRECTOR_CONFIG"); env != "" {
		return env, nil
	}
	dir, err := os.UserConfigDir()
	if err != nil {
		return "", director.Errorf(
			director.KindInvalid, "directorctl.config", "there is no place for the configuration: %w", err,
		).
			WithHint("set DIRECTOR_CONFIG or --config")
	}
	return filepath.Join(dir, "director", "config.yaml"), nil
}

// loadConfig reads the config; an absent file is an empty config.
func loadConfig(path string) (config, error) {
	var c config
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return c, nil
	}
	if err != nil {
		return c, fileError("directorctl.config", err)
	}
	dec := yaml.NewDecoder(bytes.NewReader(text))
	dec.KnownFields(true)
	if err := dec.Decode(&c); err != nil {
		return c, director.Errorf(director.KindInvalid, "directorctl.config", "%s cannot be read: %w", path, err).
			WithHint("correct it, or remove it and log in again")
	}
	return c, nil
}

func (c config) tokenPath(configPath string) string {
	name := c.TokenFile
	if name == "" {
		name = strings.TrimSuffix(filepath.Base(configPath), filepath.Ext(configPath)) + ".token"
	}
	if filepath.IsAbs(name) {
		return name
	}
	return filepath.Join(filepath.Dir(configPath), name)
}

// saveConfig writes the config and the token, both readable by the user alone.
func saveConfig(path string, c config, token director.Secret) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return fileError("directorctl.config", err)
	}
	c.TokenFile = filepath.Base(c.tokenPath(path))
	text, err := yaml.Marshal(c)
	if err != nil {
		return director.Errorf(director.KindInternal, "directorctl.config", "encoding: %w", err)
	}
	if err := writeFile(c.tokenPath(path), []byte(token.Reveal()+"\n"), 0o600); err != nil {
		return err
	}
	return writeFile(path, text, 0o600)
}

// loadToken returns the token of the last login, or "" if there is none.
func loadToken(path string) (director.Secret, error) {
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", fileError("directorctl.token", err)
	}
	return director.Secret(strings.TrimSpace(string(b))), nil
}

// writeFile replaces a file in one step, so that a reader sees the old one or the new one.
func writeFile(path string, content []byte, mode fs.FileMode) error {
	if err := whole.Write(path, content, mode); err != nil {
		return fileError("directorctl.write", err)
	}
	return nil
}

// fileError classifies what the file system says.
func fileError(op string, err error) error {
	kind := director.KindInternal
	switch {
	case errors.Is(err, fs.ErrNotExist):
		kind = director.KindNotFound
	case errors.Is(err, fs.ErrPermission):
		kind = director.KindForbidden
	case errors.Is(err, fs.ErrExist):
		kind = director.KindConflict
	}
	msg := err.Error()
	if pe, ok := errors.AsType[*fs.PathError](err); ok {
		msg = pe.Path + ": " + pe.Err.Error()
	}
	return &director.Error{Kind: kind, Op: op, Msg: msg}
}
