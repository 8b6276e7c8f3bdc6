package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/url"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/gateway"
	"github.com/headgate/headgate/internal/ledger"
)

const (
	// adminLimit is how long a running Headgate may take to answer.
	adminLimit = 10 * time.Second
	// reportLimit is the most bytes of a report: more than a full ledger has.
	reportLimit = 128 << 20
	// shownTexts is how many failure texts of a tool are printed; --tool prints all.
	shownTexts = 3
)

func newFailures(e *env) *cobra.Command {
	var admin, tool string
	var asJSON bool
	c := &cobra.Command{
		Use:   "failures",
		Short: "Show how the tools of a running Headgate fail",
		Long: `Asks a running Headgate, at its admin address, what became of the calls of each tool since
it was started, and with which texts they failed most often. The tools with most failures
come first. Numbers, ids, dates, quoted values and the like are masked in the texts, so
that like ones count as one.

The address is --admin, else admin_listen of the configuration, else 127.0.0.1:8081.`,
		Example: `  headgate failures
  headgate failures --tool ledger_fetch_invoice
  headgate failures --admin 10.0.0.5:8081 --json`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			addr := admin
			if addr == "" {
				cfg, _, err := e.load()
				if err != nil {
					return err
				}
				if addr = cfg.AdminListen; addr == "" {
					return errors.New("admin_listen is off in this configuration, so there is no address to ask; say one with --admin")
				}
			}
			body, err := askFailures(c.Context(), addr, tool)
			if err != nil {
				return err
			}
			var report gateway.FailureReport
			if err := json.Unmarshal(body, &report); err != nil || report.Since.IsZero() || report.Tools == nil {
				return notHeadgate(addr)
			}
			if asJSON {
				return writeIndented(e.stdout, report)
			}
			return printFailures(e.stdout, report, tool)
		},
	}
	e.configFlag(c)
	c.Flags().StringVar(&admin, "admin", "", "ask the Headgate whose admin address is `ADDR`, host:port")
	c.Flags().StringVar(&tool, "tool", "", "show tool `NAME` alone, with all texts that are kept of it")
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}

func notHeadgate(addr string) error {
	return fmt.Errorf("%s answers, but not as the admin address of a Headgate of this version; say the right one with --admin (the MCP endpoint is another)", printable(addr))
}

// askFailures gets the report from the admin address.
func askFailures(ctx context.Context, addr, tool string) ([]byte, error) {
	base, err := adminURL(addr)
	if err != nil {
		return nil, err
	}
	u := base + "/status/failures"
	if tool != "" {
		u += "?tool=" + url.QueryEscape(tool)
	}
	ctx, cancel := context.WithTimeout(ctx, adminLimit)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u, nil)
	if err != nil {
		return nil, fmt.Errorf("--admin: %w", err)
	}
	// No proxy and no redirect: what answers there is asked, and nobody else.
	tr := &http.Transport{DisableKeepAlives: true}
	defer tr.CloseIdleConnections()
	client := &http.Client{Transport: tr, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	resp, err := client.Do(req)
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return nil, fmt.Errorf("nothing listens at %s; is headgate serve running, with another admin_listen? Say its address with --admin", printable(addr))
	case errors.Is(err, context.DeadlineExceeded):
		return nil, fmt.Errorf("%s gives no answer within %s", printable(addr), adminLimit)
	case err != nil:
		var dns *net.DNSError
		if errors.As(err, &dns) {
			return nil, fmt.Errorf("the address %s cannot be found; expected host:port such as 127.0.0.1:8081", printable(addr))
		}
		var op *net.OpError
		if errors.As(err, &op) && op.Op == "dial" {
			return nil, fmt.Errorf("asking %s: %w", printable(addr), err)
		}
		// There was a connection, and what came over it is not HTTP, or nothing came.
		return nil, notHeadgate(addr)
	}
	defer resp.Body.Close()
	typ, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if typ != "application/json" || resp.StatusCode != http.StatusOK && resp.StatusCode != http.StatusNotFound {
		return nil, notHeadgate(addr)
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, reportLimit))
	if err != nil {
		return nil, fmt.Errorf("asking %s: %w", printable(addr), err)
	}
	if resp.StatusCode == http.StatusNotFound {
		var said struct{ Error, Tool string }
		if json.Unmarshal(body, &said) == nil && said.Error == "unknown tool" && tool != "" {
			return nil, fmt.Errorf("there is no tool %q, and none of that name has been called; headgate tools lists the exposed names", tool)
		}
		return nil, notHeadgate(addr)
	}
	return body, nil
}

// adminURL is where an admin address is reached from this machine.
func adminURL(addr string) (string, error) {
	scheme := "http"
	if u, err := url.Parse(addr); err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != "" {
		scheme, addr = u.Scheme, u.Host
	}
	host, port, err := net.SplitHostPort(addr)
	if err != nil || port == "" {
		return "", fmt.Errorf("the admin address %s is not host:port, such as 127.0.0.1:8081", printable(addr))
	}
	if port == "0" {
		return "", errors.New("admin_listen has port 0, which is another port at every start; say the one in the log with --admin")
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	return scheme + "://" + net.JoinHostPort(host, port), nil
}

func printFailures(w io.Writer, r gateway.FailureReport, tool string) error {
	if len(r.Tools) == 0 {
		of := "no tool has been called"
		if tool != "" {
			of = "tool " + printable(tool) + " has not been called"
		}
		_, err := fmt.Fprintf(w, "%s since %s\n", of, when(r.Since))
		return err
	}
	fmt.Fprintf(w, "since %s: %d calls, %d failed (%s)\n\n", when(r.Since), r.Totals.Calls, r.Totals.Failed, percent(r.Totals))
	tw := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	fmt.Fprintln(tw, "TOOL\tCALLS\tFAILED\tSHARE\tHOW")
	for _, t := range r.Tools {
		fmt.Fprintf(tw, "%s\t%d\t%d\t%s\t%s\n", printable(t.Name), t.Calls, t.Failed, percent(t.Counts), how(t))
	}
	if err := tw.Flush(); err != nil {
		return err
	}
	most := shownTexts
	if tool != "" {
		most = len(r.Tools[0].Texts)
	}
	for _, t := range r.Tools {
		if len(t.Texts) > 0 {
			printTexts(w, t, most)
		}
	}
	switch advice := advice(r); {
	case !r.Texts:
		_, err := fmt.Fprintln(w, "\nFailure texts are not kept: the key failures.texts of the configuration is false, or listen is not a loopback address.")
		return err
	case advice != "":
		_, err := fmt.Fprintf(w, "\n%s\n", advice)
		return err
	}
	return nil
}

func printTexts(w io.Writer, t ledger.Tool, most int) {
	fmt.Fprintf(w, "\n%s\n", printable(t.Name))
	left := t.OtherTexts
	for i, text := range t.Texts {
		if i >= most {
			left += text.Count
			continue
		}
		code := ""
		if text.Code != 0 {
			code = fmt.Sprintf(" %d", text.Code)
		}
		said := printable(text.Text)
		if said == "" {
			said = "(no text)"
		}
		fmt.Fprintf(w, "  %6d× %s%s: %s\n", text.Count, printable(text.Outcome), code, said)
		last := "          last " + when(text.Last)
		if text.TraceID != "" {
			last += ", trace " + printable(text.TraceID)
		}
		fmt.Fprintln(w, last)
	}
	if left > 0 {
		fmt.Fprintf(w, "  %6d× other texts\n", left)
	}
}

// how names the ways in which a tool fails, the most frequent first.
func how(t ledger.Tool) string {
	var parts []string
	for _, o := range t.Ranked() {
		parts = append(parts, fmt.Sprintf("%s %d", printable(o.Outcome), o.Count))
	}
	if t.Failed > 0 && t.Outcomes[ledger.OK] == 0 && t.Name != ledger.Unknown {
		parts = append([]string{"NEVER OK"}, parts...)
	}
	if len(parts) == 0 {
		return "-"
	}
	return strings.Join(parts, ", ")
}

// advice says where guidance is worth writing: the tool and the text that account for most failures in the
// channel that models read.
func advice(r gateway.FailureReport) string {
	var tool string
	var most ledger.Text
	for _, t := range r.Tools {
		for _, text := range t.Texts {
			if text.Outcome == "tool_error" && text.Count > most.Count && t.Upstream != "" {
				tool, most = t.Name, text
			}
		}
	}
	if most.Count < 2 {
		return ""
	}
	return fmt.Sprintf("Most often a model was told by %s: %s\nA sentence in the description of the tool, or in the text itself, that says what to do instead may save %d calls of %d.",
		printable(tool), printable(most.Text), most.Count, r.Totals.Calls)
}

func percent(c ledger.Counts) string { return fmt.Sprintf("%.0f%%", 100*c.Rate) }

func when(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 UTC") }
