package main

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/mcptest"
)

func TestHelp(t *testing.T) {
	for _, command := range []string{"headgate", "serve", "stdio", "validate", "tools", "call", "failures", "key", "version"} {
		t.Run(command, func(t *testing.T) {
			args := []string{command, "--help"}
			if command == "headgate" {
				args = args[1:]
			}
			out, errs, err := headgate(t, args...)
			if err != nil || errs != "" {
				t.Fatalf("err %v, stderr %q", err, errs)
			}
			golden(t, "help-"+command, out)
		})
	}
}

func TestEveryCommandHasAHelpTest(t *testing.T) {
	var names []string
	for _, c := range newCommand(&env{}).Commands() {
		names = append(names, c.Name())
	}
	if want := []string{"call", "failures", "key", "serve", "stdio", "tools", "validate", "version"}; !slices.Equal(names, want) {
		t.Errorf("the commands are %q; TestHelp knows %q", names, want)
	}
}

func TestMisuse(t *testing.T) {
	for _, c := range []struct {
		name string
		args []string
		want string
	}{
		{"unknown command", []string{"srve"}, `unknown command "srve" for "headgate"`},
		{"unknown flag", []string{"serve", "--port", "1"}, "unknown flag: --port"},
		{"stray argument", []string{"serve", "now"}, `unknown command "now" for "headgate serve"`},
		{"no configuration to validate", []string{"validate"}, `required flag(s) "config" not set`},
		{"no such file", []string{"serve", "-c", "testdata/none.yaml"}, "no such file or directory"},
		{"no tool", []string{"call"}, "accepts between 1 and 2 arg(s), received 0"},
		{"arguments not an object", []string{"call", "x", "[1]"}, "the arguments are not a JSON object"},
		{"arguments not JSON", []string{"call", "x", "{"}, "the arguments are not a JSON object"},
	} {
		t.Run(c.name, func(t *testing.T) {
			out, errs, err := headgate(t, c.args...)
			if err == nil {
				t.Error("no error")
			}
			if out != "" {
				t.Errorf("stdout has %q", out)
			}
			if !strings.HasPrefix(errs, "headgate: ") || !strings.Contains(errs, c.want) {
				t.Errorf("stderr has %q, want %q", errs, c.want)
			}
		})
	}
}

func TestVersion(t *testing.T) {
	out, _, err := headgate(t, "version")
	if err != nil || !regexp.MustCompile(`^headgate \S+\n$`).MatchString(out) {
		t.Errorf("printed %q, %v", out, err)
	}
}

func TestValidate(t *testing.T) {
	out, errs, err := headgate(t, "validate", "-c", "testdata/good.yaml")
	if err != nil || out != "testdata/good.yaml is valid: 2 upstreams\n" || errs != "" {
		t.Errorf("good: stdout %q, stderr %q, err %v", out, errs, err)
	}
	out, errs, err = headgate(t, "validate", "-c", "testdata/bad.yaml")
	if err == nil || out != "" {
		t.Errorf("bad: stdout %q, err %v", out, err)
	}
	golden(t, "validate-bad", errs)
}

// A file that validate passes is one that serve starts with, and the other way round.
func TestServeRefusesWhatValidateRefuses(t *testing.T) {
	_, validate, _ := headgate(t, "validate", "-c", "testdata/bad.yaml")
	for _, command := range []string{"serve", "stdio", "tools"} {
		if _, errs, err := headgate(t, command, "-c", "testdata/bad.yaml"); err == nil || errs != validate {
			t.Errorf("%s: err %v, stderr %q, want %q", command, err, errs, validate)
		}
	}
}

func TestToolsOfTheDemo(t *testing.T) {
	out, errs, err := headgate(t, "tools")
	if err != nil || errs != "" {
		t.Fatalf("err %v, stderr %q", err, errs)
	}
	golden(t, "tools", out)

	out, _, err = headgate(t, "tools", "--json")
	if err != nil {
		t.Fatal(err)
	}
	var tools []struct {
		Name, Server, Original string
		Definition             struct{ Name string }
	}
	if err := json.Unmarshal([]byte(out), &tools); err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, tool := range tools {
		names = append(names, tool.Name)
		if tool.Name != tool.Definition.Name || tool.Name != tool.Server+"_"+tool.Original {
			t.Errorf("%+v: the names do not agree", tool)
		}
	}
	if len(names) != 6 || !slices.IsSorted(names) {
		t.Errorf("the names are %q", names)
	}

	out, _, err = headgate(t, "tools", "--findings")
	if err != nil || out != "nothing was withheld or repaired\n" {
		t.Errorf("findings: %q, %v", out, err)
	}
}

// oddServer offers one tool to withhold, one to repair, and texts that would disturb a terminal.
func oddServer() *mcptest.Server {
	return &mcptest.Server{Era: mcptest.Legacy, Tools: []mcptest.Tool{
		{Def: `{"name":"fine","description":"Line one.\nLine \u001b[31mtwo\u202e.","inputSchema":{"type":"object"}}`},
		{Def: `{"name":"bare","title":"No schema","inputSchema":{}}`},
		{Def: `{"name":"a.dot","inputSchema":{"type":"object"}}`},
		{Def: `{"name":"broken","inputSchema":{"type":"array"}}`},
	}}
}

func TestToolsOfAnOddServer(t *testing.T) {
	config := write(t, t.TempDir(), "headgate.yaml", fmt.Sprintf("upstreams:\n  odd: {type: http, url: %q}\n", oddServer().StartHTTP(t).URL))
	out, errs, err := headgate(t, "tools", "-c", config)
	if err != nil {
		t.Fatalf("%v: %s", err, errs)
	}
	golden(t, "tools-odd", out)
	out, _, err = headgate(t, "tools", "-c", config, "--findings")
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "tools-odd-findings", out)
	out, _, err = headgate(t, "tools", "-c", config, "--findings", "--json")
	if err != nil {
		t.Fatal(err)
	}
	var findings []struct{ Server, Tool, Rule, Text string }
	if err := json.Unmarshal([]byte(out), &findings); err != nil || len(findings) != 4 {
		t.Errorf("%d findings, %v: %s", len(findings), err, out)
	}
}

// A server that is down is named; the tools of the others are there.
func TestToolsWithOneServerDown(t *testing.T) {
	good := &mcptest.Server{Era: mcptest.Modern, Tools: mcptest.Builtin("echo")}
	config := write(t, t.TempDir(), "headgate.yaml", fmt.Sprintf(
		"upstreams:\n  good: {type: http, url: %q}\n  gone: {command: testdata/no-such-program}\n", good.StartHTTP(t).URL))
	out, errs, err := headgate(t, "tools", "-c", config)
	if err != nil || !strings.Contains(out, "good_echo") {
		t.Errorf("err %v, stdout %q", err, out)
	}
	if !strings.Contains(errs, "upstream gone is not up: ") || !strings.Contains(errs, "no such file or directory") {
		t.Errorf("stderr does not say what is wrong: %q", errs)
	}
	if strings.Contains(errs, "upstream good") {
		t.Errorf("stderr blames the wrong one: %q", errs)
	}
}

// today is how the demo says the date, which no golden file can hold.
var today = regexp.MustCompile(`\d{4}-\d{2}-\d{2} \(UTC\)|\d{4}-\d{2}-\d{2} and later`)

func TestCall(t *testing.T) {
	for _, c := range []struct {
		name  string
		args  []string
		fails string
	}{
		{"result", []string{"flights_get_weather_data", `{"location":"Lisbon"}`}, ""},
		{"tool-error", []string{"flights_book_flight", `{"to":"Lisbon","date":"2020-01-01"}`}, "the tool reported an error"},
		{"protocol-error", []string{"book_fligth"}, "the call was answered with a protocol error"},
	} {
		t.Run(c.name, func(t *testing.T) {
			out, errs, err := headgate(t, append([]string{"call"}, c.args...)...)
			if (err != nil) != (c.fails != "") {
				t.Errorf("err is %v", err)
			}
			if c.fails != "" && errs != "headgate: "+c.fails+"\n" || c.fails == "" && errs != "" {
				t.Errorf("stderr has %q", errs)
			}
			golden(t, "call-"+c.name, today.ReplaceAllString(out, "DATE"))
		})
	}
}

// What a server says is printed as it is: the order of keys, big numbers, characters that HTML minds.
func TestCallPrintsWhatTheServerSaid(t *testing.T) {
	s := &mcptest.Server{Era: mcptest.Legacy, Tools: []mcptest.Tool{{
		Def:  `{"name":"odd","inputSchema":{"type":"object"}}`,
		Call: func(c *mcptest.Call) { c.Result(`{"z":9007199254740993,"content":[],"a":1.0,"t":"<&>"}`) },
	}}}
	config := write(t, t.TempDir(), "headgate.yaml", fmt.Sprintf("upstreams:\n  odd: {type: http, url: %q}\n", s.StartHTTP(t).URL))
	out, errs, err := headgate(t, "call", "-c", config, "odd_odd", `{"n":9007199254740993}`)
	if err != nil {
		t.Fatalf("%v: %s", err, errs)
	}
	golden(t, "call-verbatim", out)
	calls := slices.DeleteFunc(s.Requests(), func(r mcptest.Recorded) bool { return r.Method != "tools/call" })
	if len(calls) != 1 || !strings.Contains(string(calls[0].Body), `"arguments":{"n":9007199254740993}`) {
		t.Errorf("the server got %q", calls)
	}
}

// Prompts and resources are listed and explained as tools are.
func TestToolsPromptsAndResources(t *testing.T) {
	list := func(raw string) func(c *mcptest.Call) { return func(c *mcptest.Call) { c.Result(raw) } }
	s := &mcptest.Server{Capabilities: `{"prompts":{},"resources":{}}`, Methods: map[string]func(c *mcptest.Call){
		"prompts/list":             list(`{"prompts":[{"name":"greet","description":"Says hello"},{"name":"hide"}]}`),
		"resources/list":           list(`{"resources":[{"uri":"r://x","name":"X"},{"uri":"r://secret","name":"S"}]}`),
		"resources/templates/list": list(`{"resourceTemplates":[{"uriTemplate":"r://{id}","name":"All of them"}]}`),
	}}
	config := write(t, t.TempDir(), "headgate.yaml", fmt.Sprintf(
		"upstreams:\n  a: {type: http, url: %q}\nauth: {api_keys: [{name: k, sha256: %q, subject: ann, teams: [t]}]}\nteams: {t: {upstreams: [a], rules: [{allow: ['*']}, {deny: ['*hide', '*secret']}]}}\n",
		s.StartHTTP(t).URL, strings.Repeat("0", 64)))
	for _, tt := range []struct {
		flags      []string
		want, none string
	}{
		{[]string{"--prompts"}, "a_greet  a       Says hello", "a_hide"},
		{[]string{"--prompts", "--explain"}, `a_hide   no       teams.t.rules[1] denies "*hide"`, "r://x"},
		{[]string{"--resources"}, "r://{id}  a       All of them", "secret"},
		{[]string{"--resources", "--explain"}, `r://secret  no       teams.t.rules[1] denies "*secret"`, "a_greet"},
		{[]string{"--resources", "--json"}, `"original": "r://x"`, "secret"},
	} {
		out, errs, err := headgate(t, append([]string{"tools", "-c", config, "--as", "ann"}, tt.flags...)...)
		if err != nil || !strings.Contains(out, tt.want) || strings.Contains(out, tt.none) {
			t.Errorf("%v: %v %s\n%s", tt.flags, err, errs, out)
		}
	}
}
