package gateway

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/headgate/headgate/configs"
	"github.com/headgate/headgate/internal/failure"
	"github.com/headgate/headgate/internal/schema"
	"github.com/headgate/headgate/internal/wire"
	"github.com/headgate/headgate/upstream"
)

// maxProblems is how much of what does not fit a schema is told at a time.
const maxProblems = 5

// ruleUnchecked names the finding of a schema that nothing is held against, ruleDrift that of a result.
const (
	ruleUnchecked = "schema_unchecked"
	ruleDrift     = "output_drift"
)

// badArguments holds the arguments of a call against the tool's inputSchema; nil lets it be sent. Arguments that are
// absent or null are {}. What cannot be checked is the server's to judge.
func (g *Gateway) badArguments(x *exchange, t *tool) *failure.Failure {
	if t.rules == nil || !t.rules.entry.CheckArguments {
		return nil
	}
	s, err := t.definition.InputSchema()
	if err != nil {
		g.tellUnchecked(t, "inputSchema", err)
		return nil
	}
	if s == nil {
		return nil
	}
	arguments, ok := x.params.Get("arguments")
	if !ok || arguments.Kind() == 'n' {
		arguments = jsontext.Value("{}")
	}
	report, err := s.Check(arguments, maxProblems)
	if errors.Is(err, schema.ErrTwice) {
		report, err = schema.Report{Problems: []schema.Problem{{Text: "have a name that stands twice; give each once"}}}, nil
	}
	if err != nil {
		g.notices.count(EventUnchecked, t.owner.ID(), t.name, 1)
		g.notices.warn(notice{"arguments", t.owner.ID(), t.name, ruleUnchecked}, "arguments were sent without a check", "cause", err.Error())
		return nil
	}
	if report.OK() {
		return nil
	}
	return &failure.Failure{Server: t.owner.ID(), Reason: failure.InvalidArguments, Outcome: failure.NotStarted,
		Problems: reportLines("arguments", "", report)}
}

// checksResults reports whether results of a tool are held against its outputSchema.
func (t *tool) checksResults() bool {
	return t.rules != nil && t.rules.entry.CheckResults != configs.CheckOff && t.rules.entry.CheckResults != ""
}

// badResult holds the result of a call against the tool's outputSchema: at once where the configuration says that it
// is to be withheld if it does not fit, else later and elsewhere.
func (g *Gateway) badResult(t *tool, reply *upstream.Reply) *failure.Failure {
	if reply.Error != nil || !t.checksResults() {
		return nil
	}
	if t.rules.entry.CheckResults == configs.CheckWarn {
		reply.Keep() // it is looked at when the answer is long gone
		g.drifts.offer(g.notices, drift{t, reply.Result})
		return nil
	}
	report := g.checkResult(t, reply.Result)
	if report.OK() {
		return nil
	}
	return &failure.Failure{Server: t.owner.ID(), Reason: failure.InvalidResult, Outcome: failure.Unknown,
		Problems: reportLines("structuredContent", "structuredContent", report)}
}

// checkResult holds a result against the tool's outputSchema, and reports and counts what does not fit. A result with
// isError, or one that only asks for input, has nothing to fit.
func (g *Gateway) checkResult(t *tool, result jsontext.Value) schema.Report {
	s, err := t.definition.OutputSchema()
	if err != nil {
		g.tellUnchecked(t, "outputSchema", err)
		return schema.Report{}
	}
	if s == nil {
		return schema.Report{}
	}
	obj, err := wire.ParseObject(result)
	if err == nil {
		if kind, ok := obj.Get("resultType"); isErrorResult(obj) || ok && string(kind) != `"complete"` {
			return schema.Report{}
		}
		content, ok := obj.Get("structuredContent")
		if !ok {
			return g.tellDrift(t, schema.Report{Problems: []schema.Problem{{Text: "is missing, and the tool has an outputSchema"}}})
		}
		var report schema.Report
		if report, err = s.Shape(content, maxProblems); err == nil {
			return g.tellDrift(t, report)
		}
	}
	g.notices.count(EventUnchecked, t.owner.ID(), t.name, 1)
	return schema.Report{}
}

// tellUnchecked reports a schema that nothing can be held against.
func (g *Gateway) tellUnchecked(t *tool, member string, err error) {
	g.notices.count(EventUnchecked, t.owner.ID(), t.name, 1)
	f := unchecked(t.owner.ID(), t.definition.Name, member, err)
	if g.notices.first(notice{member, f.Server, f.Tool, f.Text}) {
		g.log.Warn("finding", "upstream", f.Server, "tool", f.Tool, "rule", f.Rule, "text", f.Text)
	}
}

func unchecked(server, tool, member string, err error) upstream.Finding {
	what := map[string]string{"inputSchema": "arguments", "outputSchema": "results"}[member]
	return upstream.Finding{Server: server, Tool: tool, Rule: ruleUnchecked, Text: what + " are not held against " + member + ": " + err.Error()}
}

// tellDrift counts a result that does not fit and keeps what does not as findings. It returns the report.
func (g *Gateway) tellDrift(t *tool, report schema.Report) schema.Report {
	if report.OK() {
		return report
	}
	g.notices.count(EventDrift, t.owner.ID(), t.name, 1)
	for _, p := range report.Problems {
		text := "a result does not fit outputSchema: " + line("structuredContent", "structuredContent", p)
		g.notices.drift(p.Path, upstream.Finding{Server: t.owner.ID(), Tool: t.definition.Name, Rule: ruleDrift, Text: text})
	}
	return report
}

// reportLines words a report: root is the name of the whole value, and prefix stands before paths into it.
func reportLines(root, prefix string, report schema.Report) []string {
	var out []string
	for _, p := range report.Problems {
		out = append(out, line(root, prefix, p))
	}
	if report.More == 1 {
		return append(out, "and one more")
	}
	if report.More > 0 {
		out = append(out, "and "+strconv.Itoa(report.More)+" more")
	}
	return out
}

func line(root, prefix string, p schema.Problem) string {
	path := p.Path
	switch {
	case path == "":
		path = root
	case prefix != "" && path[0] != '[' && path[0] != '.':
		path = prefix + "." + path
	case prefix != "":
		path = prefix + path
	}
	return path + " " + p.Text
}

// drift is a result that waits to be held against its schema.
type drift struct {
	t      *tool
	result jsontext.Value
}

// maxWaiting bounds the results that wait; with that and schema.MaxValue their memory is.
const maxWaiting = 64

// driftQueue holds results until there is time for them.
type driftQueue chan drift

// offer queues a result, or drops it when too many wait.
func (q driftQueue) offer(n *notices, d drift) {
	if len(d.result) > schema.MaxValue {
		n.count(EventUnchecked, d.t.owner.ID(), d.t.name, 1)
		return
	}
	select {
	case q <- d:
	default:
		n.count(EventDropped, d.t.owner.ID(), d.t.name, 1)
	}
}

// watchDrift looks at queued results, one at a time, until ctx ends.
func (g *Gateway) watchDrift(ctx context.Context) {
	for {
		select {
		case d := <-g.drifts:
			g.contain("the check of a result", func() answer {
				g.checkResult(d.t, d.result)
				return answer{}
			})
		case <-ctx.Done():
			return
		}
	}
}

// findings are those of a snapshot and those of checks.
func (g *Gateway) findings(s *snapshot) []upstream.Finding {
	more := g.checkFindings(s)
	if more == nil {
		return s.findings
	}
	all := slices.Concat(s.findings, more)
	sortFindings(all)
	return slices.Compact(all)
}

// compileTime is how long somebody who asks for findings waits for schemas that nothing has been held against yet. What
// is compiled stays so, and the next who asks is shown more.
const compileTime = 2 * time.Second

// checkFindings are the findings of checks for tools that a snapshot has: schemas that nothing can be held against,
// and results that did not fit.
func (g *Gateway) checkFindings(s *snapshot) []upstream.Finding {
	began := time.Now()
	there := make(map[[2]string]bool)
	var out []upstream.Finding
	for i := range s.parts {
		p := &s.parts[i]
		for n := range p.catalogue.Tools {
			def := &p.catalogue.Tools[n]
			t := tool{definition: def, rules: p.rules}
			late := time.Since(began) > compileTime
			if t.checksResults() {
				there[[2]string{p.entry.ID, def.Name}] = true
				if late {
					continue
				}
				if _, err := def.OutputSchema(); err != nil {
					out = append(out, unchecked(p.entry.ID, def.Name, "outputSchema", err))
				}
			}
			if p.rules != nil && p.entry.CheckArguments && !late {
				if _, err := def.InputSchema(); err != nil {
					out = append(out, unchecked(p.entry.ID, def.Name, "inputSchema", err))
				}
			}
		}
	}
	return append(out, g.notices.found(func(server, tool string) bool { return there[[2]string{server, tool}] })...)
}
