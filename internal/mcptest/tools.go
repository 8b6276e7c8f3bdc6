package mcptest

import (
	"encoding/json"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Builtin returns ready-made tools by name, in that order; unknown names give
// a plain tool that answers "ok". Known are:
//
//   - echo: answers its raw arguments as structuredContent and as text
//   - add: answers the sum of the numbers a and b as text
//   - boom: answers a result with isError
//   - fail: answers a JSON-RPC error with code 7001 and data
//   - slow: answers after arguments.ms milliseconds, or stays silent when it
//     is cancelled; sends progress every 50 ms if asked to
//   - die: ends the process
//   - pid: answers the process id as text
//   - env: answers the environment as structuredContent, name to value
//   - big: answers a text of arguments.bytes bytes
func Builtin(names ...string) []Tool {
	var tools []Tool
	for _, name := range names {
		def := `{"name":` + quote(name) + `,"description":"Scripted tool.","inputSchema":{"type":"object"}}`
		tools = append(tools, Tool{Def: def, Call: builtinCalls()[name]})
	}
	return tools
}

func builtinCalls() map[string]func(*Call) {
	return map[string]func(*Call){
		"echo": func(c *Call) {
			raw := string(c.Member("arguments"))
			if raw == "" {
				raw = "{}"
			}
			c.Structured(raw)
		},
		"add": func(c *Call) {
			args := c.Arguments()
			a, _ := args["a"].(float64)
			b, _ := args["b"].(float64)
			c.Text(number(a + b))
		},
		"boom": func(c *Call) { c.ToolError("boom: the tool failed on purpose") },
		"fail": func(c *Call) { c.Error(rpcError(7001, "failed on purpose", `{"detail":1}`)) },
		"slow": slow,
		"die":  func(*Call) { os.Exit(1) },
		"pid":  func(c *Call) { c.Text(strconv.Itoa(os.Getpid())) },
		"env":  env,
		"big": func(c *Call) {
			n, _ := c.Arguments()["bytes"].(float64)
			c.Text(strings.Repeat("x", max(0, int(n))))
		},
	}
}

func slow(c *Call) {
	ms, _ := c.Arguments()["ms"].(float64)
	done := time.NewTimer(time.Duration(ms) * time.Millisecond)
	defer done.Stop()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for step := 1; ; step++ {
		select {
		case <-c.Ctx.Done():
			return
		case <-done.C:
			c.Text("done")
			return
		case <-tick.C:
			c.Progress(float64(step*50), ms, "")
		}
	}
}

func env(c *Call) {
	vars := map[string]string{}
	list := os.Environ()
	slices.Sort(list)
	for _, kv := range list {
		k, v, _ := strings.Cut(kv, "=")
		vars[k] = v
	}
	raw, _ := json.Marshal(vars)
	c.Structured(string(raw))
}
