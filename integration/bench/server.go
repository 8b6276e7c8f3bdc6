package main

import (
	"bufio"
	"bytes"
	"io"
	"net/http"
	"strconv"
	"strings"
)

// server is the least that can be called an MCP server: it looks for what it needs in the request and
// answers with bytes made in advance. It offers as many tools as its path says, and speaks both eras.
type server struct {
	calls map[string][]byte // results by tool
	lists map[string][]byte // results by path
}

// progressSteps is how often the tool "progress" tells of its progress.
const progressSteps = 5

func newServer() *server {
	s := &server{calls: map[string][]byte{}, lists: map[string][]byte{}}
	for name, size := range sizes {
		s.calls[name] = []byte(`{"resultType":"complete","content":[{"type":"text","text":"` + strings.Repeat("0123456789abcdef", size/16) + `"}]}`)
	}
	for _, l := range workloads() {
		n := l.place.tools
		if s.lists[serverPath(n)] != nil {
			continue
		}
		var defs []string
		for name := range sizes {
			defs = append(defs, definition(name))
		}
		for i := len(defs); i < n; i++ {
			defs = append(defs, definition("tool_"+strconv.Itoa(i)))
		}
		s.lists[serverPath(n)] = []byte(`{"resultType":"complete","ttlMs":300000,"cacheScope":"public","tools":[` + strings.Join(defs, ",") + `]}`)
	}
	return s
}

func serverPath(tools int) string { return "/" + strconv.Itoa(tools) }

// definition is a tool of a usual size, about 600 bytes.
func definition(name string) string {
	return `{"name":"` + name + `","title":"Read the levels","description":"Read the levels that the gauges of a canal have reported, newest first. ` +
		`Use it when the user asks how high the water stands, or stood. Do not use it to move a gate.",` +
		`"inputSchema":{"type":"object","properties":{"query":{"type":"string","description":"Words that the gauge's name contains"},` +
		`"limit":{"type":"integer","minimum":1,"maximum":100,"description":"How many levels to return"}},"required":["query"],"additionalProperties":false},` +
		`"annotations":{"readOnlyHint":true,"openWorldHint":false}}`
}

// answer returns a response in two parts, before and after which nothing but head and "}" stand; nil when there is none
// to give.
func (s *server) answer(body []byte, path string) (head string, rest []byte) {
	id := after(body, `"id":`)
	if id == nil {
		return "", nil
	}
	var result []byte
	switch string(bytes.Trim(after(body, `"method":`), `"`)) {
	case "tools/call":
		// Clients have names, too.
		for rest := body; result == nil && rest != nil; _, rest, _ = bytes.Cut(rest, []byte(`"name":`)) {
			result = s.calls[string(bytes.Trim(after(rest, `"name":`), `"`))]
		}
	case "tools/list":
		result = s.lists[path]
	case "initialize":
		result = []byte(`{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"bench","version":"1"}}`)
	case "server/discover":
		result = []byte(`{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{}},` +
			`"ttlMs":300000,"cacheScope":"public","_meta":{"io.modelcontextprotocol/serverInfo":{"name":"bench","version":"1"}}}`)
	}
	head = `{"jsonrpc":"2.0","id":` + string(id)
	if result == nil {
		return head + `,"error":`, []byte(`{"code":-32601,"message":"Method not found"}`)
	}
	return head + `,"result":`, result
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		w.WriteHeader(http.StatusMethodNotAllowed)
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	head, rest := s.answer(body, r.URL.Path)
	token := after(body, `"progressToken":`)
	switch {
	case head == "":
		w.WriteHeader(http.StatusAccepted)
	case token != nil || !strings.Contains(r.Header.Get("Accept"), "application/json"):
		w.Header().Set("Content-Type", "text/event-stream")
		for i := range progressSteps {
			if token == nil {
				break
			}
			_, _ = io.WriteString(w, `data: {"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":`+string(token)+
				`,"progress":`+strconv.Itoa(i)+"}}\n\n")
			_ = http.NewResponseController(w).Flush()
		}
		_, _ = io.WriteString(w, "data: "+head)
		_, _ = w.Write(rest)
		_, _ = io.WriteString(w, "}\n\n")
	default:
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Content-Length", strconv.Itoa(len(head)+len(rest)+1))
		_, _ = io.WriteString(w, head)
		_, _ = w.Write(rest)
		_, _ = io.WriteString(w, "}")
	}
}

// serveLines speaks the stdio transport.
func (s *server) serveLines(r io.Reader, w io.Writer, path string) error {
	in, out := bufio.NewReaderSize(r, 64<<10), bufio.NewWriterSize(w, 64<<10)
	for {
		line, err := in.ReadBytes('\n')
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		if head, rest := s.answer(line, path); head != "" {
			_, _ = out.WriteString(head)
			_, _ = out.Write(rest)
			_, _ = out.WriteString("}\n")
		}
		if in.Buffered() == 0 {
			if err := out.Flush(); err != nil {
				return err
			}
		}
	}
}

// after returns the plain value, a number or a simple string, behind a key.
func after(body []byte, key string) []byte {
	_, rest, found := bytes.Cut(body, []byte(key))
	if !found {
		return nil
	}
	end := bytes.IndexAny(rest, ",}")
	if end < 0 {
		return nil
	}
	return rest[:end]
}
