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
  all QUESTION...   ask every question, "get URL" or "resolve NAME", again and again until it is answered; prints a line for each
  sleep             do nothing until told to end

get and resolve give up after the seconds in TOOLBOX_TIMEOUT (default 10), all after those in TOOLBOX_PATIENCE (default 90).
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
	timeout, err := seconds(getenv, "TOOLBOX_TIMEOUT", 10)
	if err != nil {
		return err
	}
	patience, err := seconds(getenv, "TOOLBOX_PATIENCE", 90)
	if err != nil {
		return err
	}
	switch {
	case command == "all" && len(rest) > 0:
		ctx, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		return all(ctx, timeout, rest, stdout)
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

func seconds(getenv func(string) string, name string, otherwise int) (time.Duration, error) {
	s := getenv(name)
	if s == "" {
		return time.Duration(otherwise) * time.Second, nil
	}
	d, err := time.ParseDuration(s + "s")
	if err != nil || d <= 0 {
		return 0, fmt.Errorf("%s is %q, not a number of seconds", name, s)
	}
	return d, nil
}

// all asks every question until it is answered or ctx ends, and says what became of each. One process that asks many questions is a tenth of
// the work of many processes, and what was just started in a cluster needs a moment to be known everywhere.
func all(ctx context.Context, timeout time.Duration, questions []string, out io.Writer) error {
	var unanswered []string
	for _, q := range questions {
		command, argument, _ := strings.Cut(q, " ")
		ask := map[string]func(context.Context, string, io.Writer) error{"get": get, "resolve": resolve}[command]
		if ask == nil || argument == "" {
			return fmt.Errorf("%q is no question: %w", q, errUsage)
		}
		if err := insist(ctx, timeout, func(ctx context.Context) error { return ask(ctx, argument, io.Discard) }); err != nil {
			unanswered = append(unanswered, q+": "+err.Error())
			continue
		}
		_, _ = fmt.Fprintln(out, "ok", q)
	}
	if len(unanswered) > 0 {
		return errors.New(strings.Join(unanswered, "; "))
	}
	return nil
}

// insist asks until the answer is good or ctx ends, once at least.
func insist(ctx context.Context, timeout time.Duration, ask func(context.Context) error) error {
	for {
		try, cancel := context.WithTimeout(context.WithoutCancel(ctx), timeout)
		err := ask(try)
		cancel()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(time.Second):
		}
	}
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
