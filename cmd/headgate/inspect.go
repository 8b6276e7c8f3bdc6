package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/gateway"
	"github.com/headgate/headgate/upstream"
)

// settleLimit is how long tools and call wait for slow upstreams before they go on without them.
const settleLimit = 70 * time.Second

// withGateway runs f on a gateway whose upstreams have had their first attempt, and names those that
// are not up.
func (e *env) withGateway(ctx context.Context, f func(ctx context.Context, g *gateway.Gateway) error) error {
	_, g, _, err := e.open()
	if err != nil {
		return err
	}
	// The answer is what is asked for here; of the log only what went wrong.
	e.level.Set(max(e.level.Level(), slog.LevelWarn))
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
		return f(ctx, g)
	})
}

func newTools(e *env) *cobra.Command {
	var asJSON, findings bool
	c := &cobra.Command{
		Use:   "tools",
		Short: "List the tools that clients are offered",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return e.withGateway(c.Context(), func(_ context.Context, g *gateway.Gateway) error {
				switch {
				case findings && asJSON:
					return writeIndented(e.stdout, g.Status().Findings)
				case findings:
					return printFindings(e.stdout, g.Status().Findings)
				case asJSON:
					return writeIndented(e.stdout, g.Tools())
				}
				return printTools(e.stdout, e.stderr, g.Tools())
			})
		},
	}
	e.configFlag(c)
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	c.Flags().BoolVar(&findings, "findings", false, "print what was withheld or repaired, and why, instead of the tools")
	return c
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
			return e.withGateway(c.Context(), func(ctx context.Context, g *gateway.Gateway) error {
				return e.printAnswer(g.Call(ctx, args[0], arguments))
			})
		},
	}
	e.configFlag(c)
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
