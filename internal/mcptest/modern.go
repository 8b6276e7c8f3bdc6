package mcptest

import (
	"encoding/base64"
	"encoding/json"
	"math/big"
	"net/http"
	"strings"
)

// checkModern validates a request's protocol fields, and over HTTP its headers
// against its body (2026-07-28, Streamable HTTP, Server Validation; basic,
// _meta). It returns the error to answer, or "".
func (s *Server) checkModern(c *Call) (status int, rawError string) {
	if c.Method == "initialize" {
		data := `{"supported":[` + quote(s.version()) + `]}`
		text := "initialize is not part of this protocol; supported versions: " + s.version()
		if c.Header != nil && c.Header.Get("Mcp-Protocol-Version") == "" {
			return http.StatusBadRequest, rpcError(codeHeaderMismatch, "MCP-Protocol-Version is missing; "+text, data)
		}
		return http.StatusNotFound, rpcError(codeMethodNotFound, text, data)
	}
	meta := object(object(c.Params)["_meta"])
	version := stringMember(meta, metaPrefix+"protocolVersion")
	if c.Header != nil {
		if text := checkHeader(c.Header, "Mcp-Protocol-Version", version, version != ""); text != "" {
			return http.StatusBadRequest, rpcError(codeHeaderMismatch, text, "")
		}
	}
	if version == "" {
		return http.StatusBadRequest, rpcError(codeInvalidParams, "_meta has no protocolVersion", "")
	}
	if object(meta[metaPrefix+"clientCapabilities"]) == nil {
		return http.StatusBadRequest, rpcError(codeInvalidParams, "_meta has no clientCapabilities", "")
	}
	if version != s.version() {
		data := `{"supported":[` + quote(s.version()) + `],"requested":` + quote(version) + `}`
		return http.StatusBadRequest, rpcError(codeUnsupportedVersion, "Unsupported protocol version", data)
	}
	if c.Header == nil {
		return 0, ""
	}
	if text := s.checkHeaders(c); text != "" {
		return http.StatusBadRequest, rpcError(codeHeaderMismatch, text, "")
	}
	return 0, ""
}

// checkHeaders compares Mcp-Method, Mcp-Name and Mcp-Param-* with the body.
func (s *Server) checkHeaders(c *Call) string {
	if text := checkHeader(c.Header, "Mcp-Method", c.Method, true); text != "" {
		return text
	}
	member := map[string]string{"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}[c.Method]
	if member == "" {
		return ""
	}
	name := stringMember(object(c.Params), member)
	if text := checkHeader(c.Header, "Mcp-Name", name, true); text != "" {
		return text
	}
	if c.Method != "tools/call" {
		return ""
	}
	t, ok := s.tool(name)
	if !ok {
		return ""
	}
	schema := object([]byte(t.Def))["inputSchema"]
	return checkParams(c.Header, schema, c.Member("arguments"))
}

// checkParams walks the properties of a schema for x-mcp-header and compares
// each such header with the argument at the same path.
func checkParams(h http.Header, schema, value []byte) string {
	args := object(value)
	for name, prop := range object(object(schema)["properties"]) {
		header := stringMember(object(prop), "x-mcp-header")
		if header == "" {
			if text := checkParams(h, prop, args[name]); text != "" {
				return text
			}
			continue
		}
		arg, given := args[name]
		if string(arg) == "null" {
			given = false
		}
		want := string(arg)
		if strings.HasPrefix(want, `"`) {
			want = stringMember(args, name)
		}
		if text := checkHeader(h, "Mcp-Param-"+header, want, given); text != "" {
			return text
		}
	}
	return ""
}

// checkHeader compares one header with its value in the body and returns what
// is wrong, or "". A header without a value in the body may not be there.
func checkHeader(h http.Header, name, want string, given bool) string {
	values := h.Values(name)
	switch {
	case len(values) == 0 && given:
		return "Header mismatch: " + name + " is missing"
	case len(values) == 0 && name != "Mcp-Protocol-Version":
		return ""
	case len(values) == 0:
		return "Header mismatch: " + name + " is missing"
	case len(values) > 1:
		return "Header mismatch: " + name + " is given twice"
	case !given && name == "Mcp-Protocol-Version":
		// The body has no version; its own check says so.
		return ""
	case !given:
		return "Header mismatch: " + name + " has no value in the body"
	}
	got := values[0]
	if raw, ok := strings.CutPrefix(got, "=?base64?"); ok && strings.HasSuffix(raw, "?=") && encodable(name) {
		b, err := base64.StdEncoding.DecodeString(strings.TrimSuffix(raw, "?="))
		if err != nil {
			return "Header mismatch: " + name + " is not valid base64"
		}
		got = string(b)
	} else if strings.ContainsFunc(got, func(r rune) bool { return r != '\t' && (r < ' ' || r > '~') }) {
		return "Header mismatch: " + name + " has invalid characters"
	}
	if got != want && !sameNumber(got, want) {
		return "Header mismatch: " + name + " value " + quote(got) + " does not match body value " + quote(want)
	}
	return ""
}

func encodable(header string) bool {
	return header == "Mcp-Name" || strings.HasPrefix(header, "Mcp-Param-")
}

// sameNumber compares two JSON numbers by value, however they are written.
func sameNumber(a, b string) bool {
	if !json.Valid([]byte(a)) || !json.Valid([]byte(b)) {
		return false
	}
	x, okX := new(big.Rat).SetString(a)
	y, okY := new(big.Rat).SetString(b)
	return okX && okY && x.Cmp(y) == 0
}
