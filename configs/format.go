package configs

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
	kjson "github.com/knadh/koanf/parsers/json"
	ktoml "github.com/knadh/koanf/parsers/toml/v2"
	kyaml "github.com/knadh/koanf/parsers/yaml"
	"github.com/knadh/koanf/v2"
	"github.com/pelletier/go-toml/v2"
	"go.yaml.in/yaml/v3"
)

// fileParser reads the file's format and brings a host's file into our own form.
type fileParser struct{ l *loader }

var _ koanf.Parser = fileParser{}

// Unmarshal implements koanf.Parser. Its errors hold nothing of the file's values.
func (p fileParser) Unmarshal(data []byte) (map[string]any, error) {
	m, err := parseFormat(filepath.Ext(p.l.name), data)
	if err != nil {
		return nil, err
	}
	if m == nil {
		m = map[string]any{}
	}
	p.l.hostFile(m)
	return m, nil
}

// Marshal implements koanf.Parser; configurations are never written.
func (fileParser) Marshal(map[string]any) ([]byte, error) {
	return nil, errors.New("configurations are not written")
}

func parseFormat(ext string, data []byte) (map[string]any, error) {
	data = bytes.TrimPrefix(data, []byte("\xef\xbb\xbf"))
	switch strings.ToLower(ext) {
	case ".yaml", ".yml":
		return parseYAML(data)
	case ".json":
		return parseJSON(data)
	case ".toml":
		m, err := ktoml.Parser().Unmarshal(data)
		if err != nil {
			return nil, tomlError(err)
		}
		return m, nil
	}
	return nil, errors.New("unknown format; the file's name must end in .yaml, .yml, .json or .toml")
}

func parseYAML(data []byte) (map[string]any, error) {
	// The parser reads one document and would leave the rest unread and unsaid.
	dec := yaml.NewDecoder(bytes.NewReader(data))
	var doc, more yaml.Node
	switch err := dec.Decode(&doc); {
	case errors.Is(err, io.EOF):
		return nil, nil
	case err != nil:
		return nil, yamlError(err)
	}
	root := doc.Content[0]
	if root.Kind == yaml.ScalarNode && root.Tag == "!!null" {
		return nil, nil
	}
	if root.Kind != yaml.MappingNode {
		return nil, errors.New("the file must be a map of settings")
	}
	if err := dec.Decode(&more); !errors.Is(err, io.EOF) {
		return nil, errors.New("the file has more than one YAML document")
	}
	m, err := kyaml.Parser().Unmarshal(data)
	if err != nil {
		return nil, yamlError(err)
	}
	return m, nil
}

func parseJSON(data []byte) (map[string]any, error) {
	data = plainJSON(data)
	if len(bytes.TrimSpace(data)) == 0 {
		return nil, nil
	}
	if _, err := jsontext.NewDecoder(bytes.NewReader(data)).ReadValue(); errors.Is(err, jsontext.ErrDuplicateName) {
		var se *jsontext.SyntacticError
		errors.As(err, &se)
		return nil, fmt.Errorf("line %d: the key %q is there twice", lineAt(data, se.ByteOffset), se.JSONPointer.LastToken())
	}
	m, err := kjson.Parser().Unmarshal(data)
	var syntax *json.SyntaxError
	var kind *json.UnmarshalTypeError
	switch {
	case errors.As(err, &syntax):
		return nil, fmt.Errorf("line %d: %s", lineAt(data, syntax.Offset), scrub(syntax.Error()))
	case errors.As(err, &kind):
		return nil, errors.New("the file must be a map of settings")
	case err != nil:
		return nil, errors.New("not valid JSON")
	}
	return m, nil
}

func lineAt(data []byte, offset int64) int {
	return 1 + bytes.Count(data[:max(0, min(int(offset), len(data)))], []byte("\n"))
}

// plainJSON blanks what editors allow in their own files: comments, and a comma before a closing bracket. Lines
// keep their numbers.
func plainJSON(data []byte) []byte {
	out := bytes.Clone(data)
	blank := func(from, to int) {
		for i := from; i < to; i++ {
			if out[i] != '\n' {
				out[i] = ' '
			}
		}
	}
	comma := -1     // position of a comma that nothing but space has followed
	last := byte(0) // the last character that is neither space nor comment
	for i := 0; i < len(out); i++ {
		rest := out[i:]
		switch c := out[i]; {
		case c == '"':
			comma, last = -1, c
			for i++; i < len(out) && out[i] != '"'; i++ {
				if out[i] == '\\' {
					i++
				}
			}
		case bytes.HasPrefix(rest, []byte("//")):
			end := bytes.IndexByte(rest, '\n')
			if end < 0 {
				end = len(rest)
			}
			blank(i, i+end)
			i += end - 1
		case bytes.HasPrefix(rest, []byte("/*")):
			end := bytes.Index(rest[2:], []byte("*/"))
			if end < 0 {
				return out // the parser reports the open comment
			}
			blank(i, i+end+4)
			i += end + 3
		case c == ',':
			comma = -1
			if last != ',' && last != '{' && last != '[' { // a comma behind nothing is a mistake
				comma = i
			}
			last = c
		case c == '}' || c == ']':
			if comma >= 0 {
				out[comma] = ' '
			}
			comma, last = -1, c
		case c != ' ' && c != '\t' && c != '\r' && c != '\n':
			comma, last = -1, c
		}
	}
	return out
}

var (
	yamlPrefix    = regexp.MustCompile(`^yaml: (unmarshal errors:\s*)?`)
	quotedInError = regexp.MustCompile("'[^']*'|\"[^\"]*\"|`[^`]*`")
	codeInError   = regexp.MustCompile(`U\+[0-9A-F]{4,6}`)
	duplicateKey  = regexp.MustCompile(`mapping key ("[^"]*") already defined at (line \d+)`)
	wordInQuotes  = regexp.MustCompile(`[A-Za-z0-9\\]`)
)

func yamlError(err error) error {
	text := yamlPrefix.ReplaceAllString(err.Error(), "")
	if m := duplicateKey.FindStringSubmatch(text); m != nil {
		line, _, _ := strings.Cut(text, ": ")
		return fmt.Errorf("%s: the key %s is there twice, first at %s", line, m[1], m[2])
	}
	return errors.New(scrub(text))
}

func tomlError(err error) error {
	var de *toml.DecodeError
	if errors.As(err, &de) {
		line, _ := de.Position()
		return fmt.Errorf("line %d: %s", line, scrub(strings.TrimPrefix(de.Error(), "toml: ")))
	}
	return errors.New(scrub(strings.TrimPrefix(err.Error(), "toml: ")))
}

// scrub takes out of a parser's message what it quotes from the file, which may be a piece of a secret;
// punctuation stays, since it is what the message is about.
func scrub(text string) string {
	text = quotedInError.ReplaceAllStringFunc(text, func(q string) string {
		if wordInQuotes.MatchString(q) {
			return "(not shown)"
		}
		return q
	})
	text = codeInError.ReplaceAllString(text, "(not shown)")
	return strings.Join(strings.Fields(text), " ")
}
