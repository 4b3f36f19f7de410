package main

import (
	"bufio"
	"context"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/client"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/wire"
)

// app is one run of the command line.
type app struct {
	streams
	configFlag string
	serverFlag string
}

// modelCommands state what should be, and show what there is.
type modelCommands struct{ *app }

// planCommands make plans, start them and look at them.
type planCommands struct{ *app }

// clusterCommands work with the nodes of a cluster, and give the means to use it.
type clusterCommands struct{ *app }

// backupCommands make backups of clusters, and restore them.
type backupCommands struct{ *app }

// campaignCommands bring one change to many clusters.
type campaignCommands struct{ *app }

// receiverCommands work with those that the director tells what happens: hooks and notifications.
type receiverCommands struct{ *app }

// providerCommands work with hypervisors: their VMs and disks.
type providerCommands struct{ *app }

// importCommands bring node images and release bundles to the director.
type importCommands struct{ *app }

// authorityCommands work with certificate authorities.
type authorityCommands struct{ *app }

// accountCommands log in, and keep the keys that releases are signed with.
type accountCommands struct{ *app }

func (a *app) rootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "directorctl",
		Short: "Make and run Kubernetes clusters on virtual machines",
		Long: "directorctl speaks to a director: it states what should be (apply), shows the plan that leads there " +
			"(plan), starts it and\n" +
			"follows it. Nothing changes before a plan is started.\n\n" +
			"Environment: DIRECTOR_SERVER is the address when --server is not given, DIRECTOR_CONFIG the " +
			"configuration file.",
		Example: "  directorctl login --server https://director:8443\n" +
			"  directorctl apply -f cluster.yaml --start --wait\n" +
			"  directorctl kubeconfig demo -o demo.kubeconfig",
		SilenceUsage: true, SilenceErrors: true,
	}
	root.PersistentFlags().StringVar(
		&a.configFlag, "config", "", "configuration file (default $XDG_CONFIG_HOME/director/config.yaml)",
	)
	root.PersistentFlags().StringVar(&a.serverFlag, "server", "", "address of the director, https://host:port")
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error { return usage(cmd, "%v", err) })
	root.AddGroup(
		&cobra.Group{ID: "model", Title: "State what should be:"},
		&cobra.Group{ID: "plan", Title: "Plans:"},
		&cobra.Group{ID: "cluster", Title: "Use a cluster:"},
		&cobra.Group{ID: "provider", Title: "Hypervisors:"},
		&cobra.Group{ID: "sign", Title: "Sign what clusters are made from:"},
		&cobra.Group{ID: "session", Title: "Session:"},
		&cobra.Group{ID: "users", Title: "Who may use the director:"},
		&cobra.Group{ID: "appliance", Title: "The director's own machine:"},
	)
	a.addCommands(root)
	// Unknown commands, and the subcommands of groups, are errors of the command line like all others.
	root.Args = func(cmd *cobra.Command, args []string) error {
		if len(args) > 0 {
			return usage(cmd, "there is no command %q", args[0])
		}
		return nil
	}
	root.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	return root
}

// addCommands adds every command below its group.
func (a *app) addCommands(root *cobra.Command) {
	add := func(group string, commands ...*cobra.Command) {
		for _, c := range commands {
			c.GroupID = group
			root.AddCommand(c)
		}
	}
	models, plans, clusters := &modelCommands{a}, &planCommands{a}, &clusterCommands{a}
	providers, accounts := &providerCommands{a}, &accountCommands{a}
	imports, receivers := &importCommands{a}, &receiverCommands{a}
	campaigns, backups, authorities := &campaignCommands{a}, &backupCommands{a}, &authorityCommands{a}
	add(
		"model", models.applyCommand(), models.previewCommand(), models.diffCommand(), models.getCommand(),
		models.describeCommand(),
		models.deleteCommand(), models.projectCommand(), imports.imageCommand(), imports.releaseCommand(),
	)
	add(
		"plan", models.checkCommand(), plans.planCommand(), plans.startCommand(), plans.plansCommand(),
		a.followCommand(), plans.waitsCommand(), plans.logsCommand(), plans.eventsCommand(), plans.approveCommand(),
		plans.pauseCommand(), plans.cancelCommand(),
		plans.retryCommand(), plans.skipCommand(), plans.undoCommand(), plans.discardCommand(),
		campaigns.campaignCommand(), plans.directorCommand(), receivers.hooksCommand(),
		receivers.notificationsCommand(),
		clusters.schedulesCommand(),
	)
	add(
		"cluster", clusters.nodeCommand(), clusters.nodesCommand(), clusters.summaryCommand(), plans.phaseCommand(),
		clusters.scaleCommand(), clusters.rotateCommand(), clusters.certsCommand(), backups.backupCommand(),
		clusters.kubeconfigCommand(),
		clusters.kubeTokenCommand(), clusters.accessCommand(), clusters.inventoryCommand(),
	)
	add(
		"provider", providers.providerCommand(), providers.vmsCommand(), providers.disksCommand(),
		models.capacityCommand(), models.networkCommand(), providers.consulCommand(), authorities.caCommand(),
	)
	add("sign", accounts.signCommand(), accounts.verifyCommand(), accounts.keyCommand())
	add(
		"session", accounts.loginCommand(), accounts.logoutCommand(), accounts.passwordCommand(),
		accounts.whoamiCommand(), accounts.settingsCommand(),
	)
	users := &userCommands{a}
	audits := &auditCommands{a}
	add("users", users.usersCommand(), audits.auditCommand(), users.adminCommand())
	appliances := &applianceCommands{providers}
	add("appliance", appliances.applianceCommand())
	root.AddCommand(a.versionCommand(), exitCodesTopic())
}

// exact takes exactly the named arguments.
func exact(names ...string) cobra.PositionalArgs { return between(len(names), names...) }

// several takes the named arguments, of which the last may be repeated.
func several(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) < len(names) {
			return usage(cmd, "%s is missing", names[len(args)])
		}
		return nil
	}
}

// between takes the named arguments, of which the first least are needed.
func between(least int, names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) < least {
			return usage(cmd, "%s is missing", names[len(args)])
		}
		if len(args) > len(names) {
			return usage(cmd, "%q is one argument too many", args[len(names)])
		}
		return nil
	}
}

// settings returns the config with the flag and the environment put over it.
func (a *app) settings() (string, config, error) {
	path, err := configPath(a.configFlag)
	if err != nil {
		return "", config{}, err
	}
	c, err := loadConfig(path)
	if err != nil {
		return "", config{}, err
	}
	server := a.serverFlag
	if server == "" {
		server = os.Getenv("DIRECTOR_SERVER")
	}
	if server != "" && strings.TrimRight(server, "/") != c.Server {
		// What is trusted and the token belong to the server of the login, and to no other.
		c = config{Server: strings.TrimRight(server, "/")}
	}
	return path, c, nil
}

// anonymous returns a client that has no token.
func (a *app) anonymous(c config, token director.Secret) (*client.Client, error) {
	if c.Server == "" {
		return nil, noDirector()
	}
	return client.New(client.Config{
		Server: c.Server, Token: token, CA: []byte(c.CA), Fingerprint: c.Fingerprint,
		UserAgent: "directorctl/" + version,
	})
}

func noDirector() error {
	return director.Errorf(director.KindInvalid, "directorctl.server", "no director is known").
		WithHint("directorctl login --server https://host:port")
}

// connect returns a client with the token of the last login.
func (a *app) connect() (*client.Client, error) {
	path, c, err := a.settings()
	if err != nil {
		return nil, err
	}
	var token director.Secret
	if c.TokenFile != "" {
		if token, err = loadToken(c.tokenPath(path)); err != nil {
			return nil, err
		}
	}
	if c.Server != "" && token == "" {
		return nil, director.Errorf(director.KindUnauthenticated, "directorctl.login", "not logged in to %s", c.Server).
			WithHint("directorctl login --server %s", c.Server)
	}
	return a.anonymous(c, token)
}

// connected is the RunE of a command that asks the director: run gets a client, which is closed after it. What is wrong
// with the command line itself is for PreRunE, so that it is said also to those who are not logged in.
func (a *app) connected(
	run func(cmd *cobra.Command, api *client.Client, args []string) error,
) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		api, err := a.connect()
		if err != nil {
			return err
		}
		defer api.Close()
		return run(cmd, api, args)
	}
}

// confirm asks a question that only "y" or "yes" answers; without a terminal the flag --yes must have answered it.
func (a *app) confirm(ctx context.Context, question string) (bool, error) {
	if !a.inIsTerminal() {
		return false, director.Errorf(
			director.KindInvalid, "directorctl.confirm", "there is no terminal to ask on: %s", question,
		).
			WithHint("look at what would be done, and give --yes")
	}
	say(a.err, "%s [y/N] ", question)
	line, err := a.readLine(ctx)
	if err != nil {
		return false, err
	}
	answer := strings.ToLower(strings.TrimSpace(line))
	return answer == "y" || answer == "yes", nil
}

// readLine reads a line from the terminal, and gives up when ctx ends.
func (a *app) readLine(ctx context.Context) (string, error) {
	type answer struct {
		line string
		err  error
	}
	got := make(chan answer, 1)
	go func() {
		line, err := bufio.NewReader(a.in).ReadString('\n')
		got <- answer{line, err}
	}()
	select {
	case <-ctx.Done():
		sayLine(a.err)
		return "", ctx.Err()
	case r := <-got:
		if r.err != nil && r.line == "" {
			return "", director.Errorf(director.KindInvalid, "directorctl.read", "nothing was answered")
		}
		return r.line, nil
	}
}

// The forms of output.
const (
	formTable = "table"
	formJSON  = "json"
	formYAML  = "yaml"
)

func outputFlag(cmd *cobra.Command, form *string) {
	cmd.Flags().StringVarP(form, "output", "o", formTable, "table, json or yaml")
	_ = cmd.RegisterFlagCompletionFunc(
		"output", cobra.FixedCompletions([]string{formTable, formJSON, formYAML}, cobra.ShellCompDirectiveNoFileComp),
	)
	before := cmd.PreRunE
	cmd.PreRunE = func(c *cobra.Command, args []string) error {
		switch *form {
		case formTable, formJSON, formYAML:
		default:
			return usage(c, "%q is not a form of output: table, json or yaml", *form)
		}
		if before != nil {
			return before(c, args)
		}
		return nil
	}
}

// show prints v in the form that was asked for, as a table by means of the function.
func (a *app) show(form string, v any, table func()) error {
	if form != formTable {
		return a.encode(form, v)
	}
	table()
	return nil
}

// shown completes a command that asks the director for something and shows it, with the flag for how.
func shown[T any](
	a *app, cmd *cobra.Command, ask func(context.Context, *client.Client, []string) (T, error), table func(T),
) *cobra.Command {
	form := formTable
	cmd.RunE = a.connected(func(cmd *cobra.Command, api *client.Client, args []string) error {
		v, err := ask(cmd.Context(), api, args)
		if err != nil {
			return err
		}
		return a.show(form, v, func() { table(v) })
	})
	outputFlag(cmd, &form)
	return cmd
}

// encode prints v as JSON or YAML.
func (a *app) encode(form string, v any) error {
	b, err := wire.MarshalIndent(v)
	if err == nil && form == formYAML {
		b, err = yaml.JSONToYAML(b)
	}
	if err != nil {
		return director.Errorf(director.KindInternal, "directorctl.encode", "encoding the answer: %w", err)
	}
	if form != formYAML {
		b = append(b, '\n')
	}
	_, err = a.out.Write(b)
	return err
}

// kindNamed finds a kind of document by its name, in any case and also in the plural.
func kindNamed(cmd *cobra.Command, name string) (model.Kind, error) {
	var known []string
	for _, k := range model.Kinds() {
		one := strings.ToLower(string(k))
		if n := strings.ToLower(name); n == one || n == one+"s" {
			return k, nil
		}
		known = append(known, one)
	}
	return "", usage(cmd, "there is no kind %q; there are %s", name, strings.Join(known, ", "))
}

// The completions ask the director, and are silent when it does not answer.

type completion = func(cmd *cobra.Command, args []string, toComplete string) ([]string, cobra.ShellCompDirective)

const completionTimeout = 3 * time.Second

func (a *app) complete(at int, list func(ctx context.Context, c *client.Client, args []string) []string) completion {
	return func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if len(args) != at {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		c, err := a.connect()
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		defer c.Close()
		ctx, cancel := context.WithTimeout(cmd.Context(), completionTimeout)
		defer cancel()
		return list(ctx, c, args), cobra.ShellCompDirectiveNoFileComp
	}
}

func clusterNames(ctx context.Context, c *client.Client, _ []string) []string {
	return documentNames(ctx, c, model.KindCluster)
}

func documentNames(ctx context.Context, c *client.Client, kind model.Kind) []string {
	docs, _ := c.Documents(ctx, kind) // no completion is better than an error in the middle of a line
	names := make([]string, len(docs))
	for i, d := range docs {
		names[i] = d.Name
	}
	return names
}

func planIDs(ctx context.Context, c *client.Client, _ []string) []string {
	plans, _ := c.Plans(ctx, client.PlanFilter{Limit: 50})
	ids := make([]string, len(plans))
	for i, p := range plans {
		ids[i] = p.ID + "\t" + p.Operation + " " + p.Cluster + " " + p.Status
	}
	return ids
}

func (a *app) completeKind(at int) completion {
	names := a.complete(at+1, func(ctx context.Context, c *client.Client, args []string) []string {
		for _, k := range model.Kinds() {
			if n := strings.ToLower(args[at]); n == strings.ToLower(string(k)) || n == strings.ToLower(string(k))+"s" {
				return documentNames(ctx, c, k)
			}
		}
		return nil
	})
	return func(cmd *cobra.Command, args []string, toComplete string) ([]string, cobra.ShellCompDirective) {
		if len(args) != at {
			return names(cmd, args, toComplete)
		}
		var kinds []string
		for _, k := range model.Kinds() {
			kinds = append(kinds, strings.ToLower(string(k)))
		}
		return kinds, cobra.ShellCompDirectiveNoFileComp
	}
}
