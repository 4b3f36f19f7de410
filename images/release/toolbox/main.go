// Command toolbox is a pod's tool for checks from inside a cluster: a web server that names itself, a web client and a resolver.
// It exits with status 0 when what was asked for worked, 1 when it did not, 2 for a wrong command line.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"sort"
	"strings"
	"syscall"
	"time"
)

const usage = `usage: toolbox COMMAND

  serve [ADDRESS]   serve HTTP on ADDRESS (default :8080): / answers the host name, /from the caller's address, /healthz ok
  get URL           fetch URL and print the body; fails for a status other than 2xx
  resolve NAME      print the addresses of NAME, one in a line
  sleep             do nothing until told to end

get and resolve give up after the seconds in TOOLBOX_TIMEOUT (default 10).
`

// errUsage marks a wrong command line.
var errUsage = errors.New("wrong command line")

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := run(ctx, os.Args[1:], os.Getenv, os.Stdout, os.Stderr)
	switch {
	case err == nil:
	case errors.Is(err, errUsage):
		os.Exit(2)
	default:
		fmt.Fprintln(os.Stderr, "toolbox:", err)
		os.Exit(1)
	}
}

// run does what args say. It returns errUsage after it printed the usage.
func run(ctx context.Context, args []string, getenv func(string) string, stdout, stderr io.Writer) error {
	command, rest := "", []string(nil)
	if len(args) > 0 {
		command, rest = args[0], args[1:]
	}
	timeout := 10 * time.Second
	if s := getenv("TOOLBOX_TIMEOUT"); s != "" {
		d, err := time.ParseDuration(s + "s")
		if err != nil || d <= 0 {
			return fmt.Errorf("TOOLBOX_TIMEOUT is %q, not a number of seconds", s)
		}
		timeout = d
	}
	switch {
	case command == "serve" && len(rest) <= 1:
		address := ":8080"
		if len(rest) == 1 {
			address = rest[0]
		}
		listener, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
		if err != nil {
			return err
		}
		return serve(ctx, listener)
	case command == "get" && len(rest) == 1:
		ctx, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		return get(ctx, rest[0], stdout)
	case command == "resolve" && len(rest) == 1:
		ctx, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		return resolve(ctx, rest[0], stdout)
	case command == "sleep" && len(rest) == 0:
		<-ctx.Done()
		return nil
	case command == "help" || command == "--help" || command == "-h":
		_, err := io.WriteString(stdout, usage)
		return err
	}
	if _, err := io.WriteString(stderr, usage); err != nil {
		return err
	}
	return errUsage
}

// serve answers on the listener until ctx ends.
func serve(ctx context.Context, listener net.Listener) error {
	name, err := os.Hostname()
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprintln(w, name) })
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /from", func(w http.ResponseWriter, r *http.Request) {
		host, _, err := net.SplitHostPort(r.RemoteAddr)
		if err != nil {
			host = r.RemoteAddr
		}
		_, _ = fmt.Fprintln(w, host)
	})
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	stop := context.AfterFunc(ctx, func() {
		grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
		defer cancel()
		if server.Shutdown(grace) != nil {
			_ = server.Close()
		}
	})
	defer stop()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// get prints the body of url and fails when the status is not 2xx.
func get(ctx context.Context, url string, out io.Writer) error {
	if !strings.Contains(url, "://") {
		url = "http://" + url
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	if _, err := io.Copy(out, response.Body); err != nil {
		return err
	}
	if response.StatusCode/100 != 2 {
		return fmt.Errorf("get %s: %s", url, response.Status)
	}
	return nil
}

// resolve prints the sorted addresses of name.
func resolve(ctx context.Context, name string, out io.Writer) error {
	addresses, err := net.DefaultResolver.LookupHost(ctx, name)
	if err != nil {
		return err
	}
	sort.Strings(addresses)
	_, err = fmt.Fprintln(out, strings.Join(addresses, "\n"))
	return err
}
