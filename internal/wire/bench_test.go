package wire_test

import (
	"bytes"
	"io"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/headgate/headgate/internal/wire"
)

const callText = `{"jsonrpc":"2.0","id":17,"method":"tools/call","params":{"name":"weather_get_forecast","arguments":` +
	`{"location":"Seattle, WA","days":5,"units":["metric",true,null]},"_meta":{"io.modelcontextprotocol/protocolVersion":` +
	`"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"ExampleClient","version":"1.0.0"},` +
	`"io.modelcontextprotocol/clientCapabilities":{},"progressToken":"abc"}}}`

func largeResult() []byte {
	text := wire.AppendString(nil, strings.Repeat("A line of some text, \"quoted\" and not.\n", 27_000))
	return wire.AppendResult(nil, "17", jsontext.Value(`{"content":[{"type":"text","text":`+string(text)+`}]}`))
}

func BenchmarkParse(b *testing.B) {
	listed := `{"name":"tool","description":"Does a thing.","inputSchema":{"type":"object","properties":{"a":{"type":"string"}}}}`
	for _, bench := range []struct {
		name string
		data []byte
	}{
		{"call", []byte(callText)},
		{"result", []byte(`{"jsonrpc":"2.0","id":17,"result":{"content":[{"type":"text","text":"Sunny."}],"isError":false}}`)},
		{"list of 1000", []byte(`{"jsonrpc":"2.0","id":17,"result":{"tools":[` + strings.Repeat(listed+",", 999) + listed + `]}}`)},
		{"result of 1 MB", largeResult()},
		{"result of 1 MB of plain text", []byte(`{"jsonrpc":"2.0","id":17,"result":{"content":[{"type":"text","text":"` + strings.Repeat("0123456789abcdef", 1<<16) + `"}]}}`)},
	} {
		b.Run(bench.name, func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(len(bench.data)))
			for b.Loop() {
				if _, err := wire.Parse(bench.data); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkRewrite does to the params of a call what the message path does: a new name and new _meta fields.
func BenchmarkRewrite(b *testing.B) {
	m, err := wire.Parse([]byte(callText))
	if err != nil {
		b.Fatal(err)
	}
	edits := []wire.Edit{{Name: "name", Value: jsontext.Value(`"get_forecast"`)}, {Name: "_meta", Value: jsontext.Value(`{"a":1}`)}}
	b.ReportAllocs()
	b.SetBytes(int64(len(m.Params)))
	var out []byte
	for b.Loop() {
		o, err := wire.ParseObject(m.Params)
		if err != nil {
			b.Fatal(err)
		}
		out = o.Append(out[:0], edits...)
	}
}

func BenchmarkAppendResult(b *testing.B) {
	result := jsontext.Value(`{"content":[{"type":"text","text":"Sunny."}],"isError":false}`)
	b.ReportAllocs()
	var out []byte
	for b.Loop() {
		out = wire.AppendResult(out[:0], "17", result)
	}
}

func BenchmarkEventReader(b *testing.B) {
	small := wire.AppendEvent(nil, "message", "", []byte(callText))
	for _, bench := range []struct {
		name   string
		stream []byte
		events int
	}{
		{"small events", bytes.Repeat(small, 1000), 1000},
		{"event of 1 MB", wire.AppendEvent(nil, "message", "", largeResult()), 1},
		{"CR ends", bytes.ReplaceAll(bytes.Repeat(small, 1000), []byte("\n"), []byte("\r")), 1000},
	} {
		b.Run(bench.name, func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(len(bench.stream)))
			for b.Loop() {
				r := wire.NewEventReader(bytes.NewReader(bench.stream), 4<<20)
				n := 0
				for {
					_, err := r.Next()
					if err == io.EOF {
						break
					}
					if err != nil {
						b.Fatal(err)
					}
					n++
				}
				if n != bench.events {
					b.Fatalf("%d events", n)
				}
			}
		})
	}
}

func BenchmarkLineReader(b *testing.B) {
	stream := []byte(strings.Repeat(callText+"\n", 1000))
	b.ReportAllocs()
	b.SetBytes(int64(len(stream)))
	for b.Loop() {
		r := wire.NewLineReader(bytes.NewReader(stream), 4<<20)
		for {
			if _, err := r.Next(); err == io.EOF {
				break
			} else if err != nil {
				b.Fatal(err)
			}
		}
	}
}
