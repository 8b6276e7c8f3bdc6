package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/authz"
	"github.com/headgate/headgate/configs"
	"github.com/headgate/headgate/gateway"
	"github.com/headgate/headgate/internal/telemetry"
	"github.com/headgate/headgate/upstream"
)

// settleLimit is how long tools and call wait for slow upstreams before they go on without them.
const settleLimit = 70 * time.Second

// withGateway runs f on a gateway whose upstreams have had their first attempt, and names those that
// are not up.
func (e *env) withGateway(ctx context.Context, f func(ctx context.Context, cfg *configs.Config, g *gateway.Gateway) error) error {
	cfg, g, _, err := e.open()
	if err != nil {
		return err
	}
	// The answer is what is asked for here; of the log only what went wrong.
	// What became of a call is what the command prints.
	e.levels.Set(max(cfg.Log.Level, slog.LevelWarn), map[string]slog.Level{telemetry.LogAccess: slog.LevelError})
	return running(ctx, g, func(ctx context.Context) error {
		wait, cancel := context.WithTimeout(ctx, settleLimit)
		defer cancel()
		if err := g.WaitSettled(wait); err != nil && ctx.Err() != nil {
			return ctx.Err()
		}
		for _, u := range g.Status().Upstreams {
			if u.State != upstream.Up {
				fmt.Fprintf(e.stderr, "upstream %s is not up: %s\n", u.ID, printable(u.Error))
			}
		}
		return f(ctx, cfg, g)
	})
}

// viewer is the caller through whose eyes a command looks.
type viewer struct {
	subject, team string
	scopes        []string
}

func (v *viewer) flags(c *cobra.Command) {
	c.Flags().StringVar(&v.subject, "as", "", "look as `SUBJECT`, with the teams and scopes of its API key")
	c.Flags().StringVar(&v.team, "team", "", "look at the endpoint of team `NAME`, as a member of it")
	c.Flags().StringSliceVar(&v.scopes, "scope", nil, "look as if granted `SCOPE` too; may be repeated")
}

// caller finds the caller in the configuration. Without --as it is the operator, who is in every team;
// a subject that no API key has is known from tokens alone, and is what --team and --scope say.
func (v *viewer) caller(cfg *configs.Config) (authz.Caller, error) {
	if v.team != "" && cfg.Teams[v.team] == nil {
		return authz.Caller{}, fmt.Errorf("there is no team %q", v.team)
	}
	teams, scopes := slices.Collect(maps.Keys(cfg.Teams)), slices.Clone(v.scopes)
	subject := v.subject
	if subject == "" {
		return authz.NewCaller("operator", teams, scopes), nil
	}
	if teams = nil; v.team != "" {
		teams = []string{v.team}
	}
	if cfg.Auth != nil {
		if i := slices.IndexFunc(cfg.Auth.APIKeys, func(k configs.APIKey) bool { return k.Subject == subject }); i >= 0 {
			key := cfg.Auth.APIKeys[i]
			return authz.NewCaller(subject, key.Teams, append(scopes, key.Scopes...)), nil
		}
	}
	if teams == nil && cfg.Teams != nil {
		return authz.Caller{}, fmt.Errorf("no API key has the subject %q; for one that comes with tokens, say its team with --team", subject)
	}
	return authz.NewCaller(subject, teams, scopes), nil
}

var errNoEndpoint = errors.New("this caller has no such endpoint: it is not in that team")

func newTools(e *env) *cobra.Command {
	var asJSON, findings, explain, prompts, resources bool
	var who viewer
	c := &cobra.Command{
		Use:   "tools",
		Short: "List the tools that clients are offered, or the prompts or resources",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return e.withGateway(c.Context(), func(_ context.Context, cfg *configs.Config, g *gateway.Gateway) error {
				switch {
				case findings && asJSON:
					return writeIndented(e.stdout, g.Status().Findings)
				case findings:
					return printFindings(e.stdout, g.Status().Findings)
				}
				caller, err := who.caller(cfg)
				if err != nil {
					return err
				}
				var listings []gateway.Listing // none: the tools
				if prompts {
					listings = append(listings, gateway.Prompts)
				}
				if resources {
					listings = append(listings, gateway.Resources, gateway.Templates)
				}
				if explain {
					list, ok := explained(g, caller, who.team, listings)
					if !ok {
						return errNoEndpoint
					}
					if asJSON {
						return writeIndented(e.stdout, list)
					}
					return printExplained(e.stdout, list)
				}
				list, ok := offered(g, caller, who.team, listings)
				if !ok {
					return errNoEndpoint
				}
				if asJSON {
					return writeIndented(e.stdout, list)
				}
				if listings != nil {
					return printOffers(e.stdout, list)
				}
				return printTools(e.stdout, e.stderr, list)
			})
		},
	}
	e.configFlag(c)
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	c.Flags().BoolVar(&findings, "findings", false, "print what was withheld or repaired, and why, instead of the tools")
	c.Flags().BoolVar(&explain, "explain", false, "print every tool with whether the caller may use it, and the rule that decides")
	c.Flags().BoolVar(&prompts, "prompts", false, "list the prompts instead of the tools")
	c.Flags().BoolVar(&resources, "resources", false, "list the resources and resource templates instead of the tools")
	who.flags(c)
	return c
}

// offered lists the tools, or what is in other listings.
func offered(g *gateway.Gateway, caller authz.Caller, team string, listings []gateway.Listing) ([]gateway.ToolInfo, bool) {
	if listings == nil {
		return g.Tools(caller, team)
	}
	return gathered(listings, func(l gateway.Listing) ([]gateway.ToolInfo, bool) { return g.Offers(caller, team, l) })
}

// explained is the same with what the caller is not shown.
func explained(g *gateway.Gateway, caller authz.Caller, team string, listings []gateway.Listing) ([]gateway.Explained, bool) {
	if listings == nil {
		return g.Explain(caller, team)
	}
	return gathered(listings, func(l gateway.Listing) ([]gateway.Explained, bool) { return g.ExplainOffers(caller, team, l) })
}

// gathered puts listings together; ok is false if one is not for the caller. The list is never nil, as JSON wants it.
func gathered[T any](listings []gateway.Listing, of func(gateway.Listing) ([]T, bool)) (list []T, ok bool) {
	list = []T{}
	for _, l := range listings {
		part, ok := of(l)
		if !ok {
			return nil, false
		}
		list = append(list, part...)
	}
	return list, true
}

func printOffers(w io.Writer, list []gateway.ToolInfo) error {
	tw := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	fmt.Fprintln(tw, "NAME\tSERVER\tDESCRIPTION")
	for _, o := range list {
		var def struct{ Name, Title, Description string }
		_ = json.Unmarshal(o.Definition, &def)
		text := cmp.Or(def.Description, def.Title)
		if def.Name != o.Name {
			text = cmp.Or(text, def.Name)
		}
		fmt.Fprintf(tw, "%s\t%s\t%s\n", printable(o.Name), o.Server, shorten(printable(text), 60))
	}
	return tw.Flush()
}

func printExplained(w io.Writer, list []gateway.Explained) error {
	tw := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	fmt.Fprintln(tw, "NAME\tMAY USE\tWHY")
	for _, t := range list {
		may := "no"
		switch {
		case t.Decision.Allowed && t.Decision.Scopes != nil:
			may = "after step-up"
		case t.Decision.Allowed:
			may = "yes"
		}
		fmt.Fprintf(tw, "%s\t%s\t%s\n", printable(t.Name), may, printable(t.Decision.Why))
	}
	return tw.Flush()
}

// manyTools is where hosts begin to cut lists.
const manyTools = 128

func printTools(w, warn io.Writer, tools []gateway.ToolInfo) error {
	tw := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	fmt.Fprintln(tw, "NAME\tSERVER\tTOOL\tDESCRIPTION")
	for _, t := range tools {
		var def struct{ Title, Description string }
		_ = json.Unmarshal(t.Definition, &def)
		text := def.Description
		if text == "" {
			text = def.Title
		}
		fmt.Fprintf(tw, "%s\t%s\t%s\t%s\n", t.Name, t.Server, printable(t.Original), shorten(printable(text), 60))
	}
	if err := tw.Flush(); err != nil {
		return err
	}
	if len(tools) > manyTools {
		fmt.Fprintf(warn, "%d tools: some hosts take no more than 40 or %d and drop the rest\n", len(tools), manyTools)
	}
	return nil
}

func printFindings(w io.Writer, findings []upstream.Finding) error {
	if len(findings) == 0 {
		_, err := fmt.Fprintln(w, "nothing was withheld or repaired")
		return err
	}
	tw := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	fmt.Fprintln(tw, "SERVER\tTOOL\tRULE\tFINDING")
	for _, f := range findings {
		fmt.Fprintf(tw, "%s\t%s\t%s\t%s\n", f.Server, printable(f.Tool), f.Rule, printable(f.Text))
	}
	return tw.Flush()
}

func newCall(e *env) *cobra.Command {
	var who viewer
	c := &cobra.Command{
		Use:   "call NAME [JSON]",
		Short: "Call one tool through the whole path",
		Long: `Calls a tool by its exposed name with a JSON object of arguments, on the path that a
client's call takes, and shows which of the two channels answered: a result, which the
model reads, or a JSON-RPC error, which the client program reads. The exit status is 1
for an error and for a result with isError: true.`,
		Example: `  headgate call flights_get_weather_data '{"location":"Lisbon"}'`,
		Args:    cobra.RangeArgs(1, 2),
		RunE: func(c *cobra.Command, args []string) error {
			var arguments json.RawMessage
			if len(args) == 2 {
				var obj map[string]json.RawMessage
				if err := json.Unmarshal([]byte(args[1]), &obj); err != nil {
					return fmt.Errorf("the arguments are not a JSON object: %w", err)
				}
				arguments = json.RawMessage(args[1])
			}
			e.serves = true
			defer e.closeTelemetry()
			return e.withGateway(c.Context(), func(ctx context.Context, cfg *configs.Config, g *gateway.Gateway) error {
				caller, err := who.caller(cfg)
				if err != nil {
					return err
				}
				a, ok := g.Call(ctx, caller, who.team, args[0], arguments)
				if !ok {
					return errNoEndpoint
				}
				return e.printAnswer(a)
			})
		},
	}
	e.configFlag(c)
	who.flags(c)
	return c
}

var (
	errToolError     = errors.New("the tool reported an error")
	errProtocolError = errors.New("the call was answered with a protocol error")
)

func (e *env) printAnswer(a gateway.Answer) error {
	channel, body, err := "result", a.Result, error(nil)
	switch {
	case a.Error != nil:
		channel, body, err = "JSON-RPC error", a.Error, errProtocolError
	case a.IsError():
		channel, err = "result with isError: true", errToolError
	}
	fmt.Fprintf(e.stdout, "channel: %s\n", channel)
	if werr := writeIndented(e.stdout, body); werr != nil {
		return werr
	}
	return err
}

func writeIndented(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

// printable makes text of servers safe for a terminal: one line, no control characters and none of
// the invisible ones by which text can pass for another.
func printable(s string) string {
	return strings.Join(strings.Fields(strings.Map(func(r rune) rune {
		if unicode.IsSpace(r) {
			return ' '
		}
		if !unicode.IsPrint(r) {
			return '\uFFFD'
		}
		return r
	}, s)), " ")
}

func shorten(s string, n int) string {
	if r := []rune(s); len(r) > n {
		return string(r[:n-1]) + "…"
	}
	return s
}
