package mcptest

import (
	"bytes"
	"encoding/json"
)

const (
	metaPrefix      = "io.modelcontextprotocol/"
	subscriptionKey = metaPrefix + "subscriptionId"
)

// The error codes that scripted servers use.
const (
	codeParse              = -32700
	codeInvalidRequest     = -32600
	codeMethodNotFound     = -32601
	codeInvalidParams      = -32602
	codeHeaderMismatch     = -32020
	codeUnsupportedVersion = -32022
)

// message is one received JSON-RPC message. Members are looked up by exact
// name, and the last of a duplicate wins.
type message struct {
	raw     []byte
	method  string
	id      string // raw; empty when there is none
	params  []byte // raw; nil when there is none
	invalid int    // the error code when it is no message
}

func parse(raw []byte) message {
	m := message{raw: raw}
	if !json.Valid(raw) {
		m.invalid = codeParse
		return m
	}
	obj := object(raw)
	if obj == nil || stringMember(obj, "jsonrpc") != "2.0" {
		m.invalid = codeInvalidRequest
		return m
	}
	m.method = stringMember(obj, "method")
	m.id = string(obj["id"])
	m.params = obj["params"]
	if m.method == "" && obj["result"] == nil && obj["error"] == nil {
		m.invalid = codeInvalidRequest
	}
	return m
}

func (m message) isRequest() bool  { return m.method != "" && m.id != "" }
func (m message) isResponse() bool { return m.method == "" && m.invalid == 0 }

// object returns the raw members of a JSON object, nil if raw is none.
func object(raw []byte) map[string]json.RawMessage {
	var obj map[string]json.RawMessage
	if json.Unmarshal(raw, &obj) != nil {
		return nil
	}
	return obj
}

// stringMember returns a member that is a string, else "".
func stringMember(obj map[string]json.RawMessage, name string) string {
	var v string
	if json.Unmarshal(obj[name], &v) != nil {
		return ""
	}
	return v
}

// quote returns s as a JSON string, without the escapes for HTML.
func quote(s string) string {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(s); err != nil {
		return `""`
	}
	return string(bytes.TrimSuffix(b.Bytes(), []byte("\n")))
}

func response(id, rawResult string) []byte {
	return []byte(`{"jsonrpc":"2.0","id":` + id + `,"result":` + rawResult + `}`)
}

func errorResponse(id, rawError string) []byte {
	if id == "" {
		id = "null"
	}
	return []byte(`{"jsonrpc":"2.0","id":` + id + `,"error":` + rawError + `}`)
}

func notification(method, rawParams string) []byte {
	msg := `{"jsonrpc":"2.0","method":` + quote(method)
	if rawParams != "" {
		msg += `,"params":` + rawParams
	}
	return []byte(msg + `}`)
}

// rpcError is a raw error object; data is raw JSON or empty.
func rpcError(code int, text, data string) string {
	c, _ := json.Marshal(code)
	raw := `{"code":` + string(c) + `,"message":` + quote(text)
	if data != "" {
		raw += `,"data":` + data
	}
	return raw + `}`
}

// withMeta adds one _meta member to a raw params object.
func withMeta(rawParams, key, rawValue string) string {
	params := object([]byte(rawParams))
	if params == nil {
		params = map[string]json.RawMessage{}
	}
	meta := object(params["_meta"])
	if meta == nil {
		meta = map[string]json.RawMessage{}
	}
	meta[key] = json.RawMessage(rawValue)
	params["_meta"], _ = json.Marshal(meta)
	raw, _ := json.Marshal(params)
	return string(raw)
}
