package configs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/knadh/koanf/providers/rawbytes"
	"github.com/knadh/koanf/v2"
)

// Options are what a configuration is made of besides its file. The zero value adds nothing.
type Options struct {
	// Environ has the form of os.Environ. It gives the HEADGATE_* settings and the values of ${env:NAME}; nil
	// means an empty environment.
	Environ []string
	// Overrides win over everything else: settings from flags, by dotted key path ("log.level"). A value may
	// be a string, as in HEADGATE_* variables, or have the setting's own type.
	Overrides map[string]any
}

// Load reads and checks the configuration in a file. An empty path means no file. The error, if any, is an
// *Errors with everything that is wrong; a file that cannot be read is one of them.
func Load(path string, o Options) (*Config, error) {
	if path == "" {
		return newLoader("", o).load(nil)
	}
	data, err := readRegular(path, maxConfigFile)
	if err != nil {
		return nil, newErrors([]Problem{{Path: path, Text: "cannot be read: " + err.Error()}})
	}
	l := newLoader(path, o)
	l.files[path] = true
	cfg, err := l.load(data)
	if err != nil {
		return nil, err
	}
	if w := warnReadable(path, cfg); w != "" {
		cfg.Warnings = append(cfg.Warnings, w)
	}
	return cfg, nil
}

// Parse is Load on bytes. The extension of name gives the format: .yaml, .yml, .json or .toml.
func Parse(name string, data []byte, o Options) (*Config, error) {
	return newLoader(name, o).load(data)
}

const (
	maxConfigFile = 16 << 20
	maxValueFile  = 1 << 20
)

// readRegular reads a file of at most limit bytes. Its errors do not repeat the path. Pipes and devices are
// refused: reading one could block for good, and a reload could not read it again.
func readRegular(path string, limit int64) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, bare(err)
	}
	if !info.Mode().IsRegular() {
		return nil, errors.New("not a regular file")
	}
	if info.Size() > limit {
		return nil, fmt.Errorf("larger than %s", formatSize(limit))
	}
	data, err := os.ReadFile(path)
	return data, bare(err)
}

func bare(err error) error {
	var pe *fs.PathError
	if errors.As(err, &pe) {
		return pe.Err
	}
	return err
}

// warnReadable says so when every user of the machine can read credentials that stand in the file itself.
func warnReadable(path string, cfg *Config) string {
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm()&0o004 == 0 || runtime.GOOS == "windows" {
		return ""
	}
	for _, u := range cfg.Upstreams {
		for section, values := range map[string]map[string]string{"headers": u.Headers, "env": u.Env} {
			for k, v := range values {
				if v != "" && credentialName(k) && !u.hidden[join(section, k)] {
					return filepath.Base(path) + ": holds credentials and is readable by every user; set its mode to 0600"
				}
			}
		}
	}
	return ""
}

func credentialName(name string) bool {
	name = strings.ToLower(name)
	return slices.ContainsFunc([]string{"authorization", "cookie", "token", "secret", "password", "key"},
		func(part string) bool { return strings.Contains(name, part) })
}

// loader collects what is found out while one configuration is read.
type loader struct {
	name      string
	options   Options
	environ   map[string]string
	problems  []Problem
	warnings  []string
	files     map[string]bool
	hidden    map[string]bool   // paths whose value came from ${env:…} or ${file:…}
	origin    map[string]string // paths set by a variable or an override, to the variable's name or ""
	shownAs   map[string]string // path prefixes of a host file's entries, to how the file spells them
	host      bool              // the file has a host's map in place of upstreams
	failed    map[string]bool   // paths whose value could not be read
	checking  bool              // values are read, and are being checked
	upstreams map[string]*upstreamSource
}

// upstreamSource is an upstream with the keys that were given for it.
type upstreamSource struct {
	*Upstream
	given map[string]bool
}

func newLoader(name string, o Options) *loader {
	l := &loader{
		name:      name,
		options:   o,
		environ:   make(map[string]string, len(o.Environ)),
		files:     map[string]bool{},
		hidden:    map[string]bool{},
		origin:    map[string]string{},
		shownAs:   map[string]string{},
		failed:    map[string]bool{},
		upstreams: map[string]*upstreamSource{},
	}
	for _, e := range o.Environ {
		if k, v, ok := strings.Cut(e, "="); ok {
			l.environ[k] = v
		}
	}
	return l
}

// load runs all steps; each reports what it finds and leaves the rest to the next, so that one run shows
// everything that is wrong.
func (l *loader) load(data []byte) (*Config, error) {
	// The delimiter is one that no key has: koanf must not split the keys of headers and env.
	k := koanf.New("\x00")
	if l.name != "" {
		if err := k.Load(rawbytes.Provider(data), fileParser{l}); err != nil {
			return nil, newErrors([]Problem{{Path: l.name, Text: err.Error()}})
		}
	}
	if err := l.overlay(k); err != nil {
		return nil, newErrors([]Problem{{Text: err.Error()}})
	}

	cfg := Default()
	l.decode(k.Raw(), cfg)
	l.checking = true
	l.validate(cfg)
	if len(l.problems) > 0 {
		return nil, newErrors(l.problems)
	}
	for id, u := range l.upstreams {
		cfg.Upstreams[id] = u.Upstream
	}
	for f := range l.files {
		cfg.files = append(cfg.files, f)
	}
	slices.Sort(cfg.files)
	slices.Sort(l.warnings)
	cfg.Warnings = slices.Compact(l.warnings)
	l.distributeHidden(cfg)
	return cfg, nil
}

// distributeHidden gives each part of the configuration the paths it must not print.
func (l *loader) distributeHidden(cfg *Config) {
	cfg.hidden = map[string]bool{}
	for p := range l.hidden {
		cfg.hidden[p] = true
	}
	for id, u := range cfg.Upstreams {
		u.hidden = map[string]bool{}
		base := join("upstreams", id) + "."
		for p := range l.hidden {
			if rest, ok := strings.CutPrefix(p, base); ok {
				u.hidden[rest] = true
			}
		}
	}
}

// problem records what is wrong at a path; it names the variable that set the value, and the entry as the
// user's file spells it.
func (l *loader) problem(path, format string, args ...any) {
	if l.checking && l.failed[path] {
		return // what is wrong has been said, and the value at hand is only its default
	}
	l.failed[path] = l.failed[path] || !l.checking
	text := fmt.Sprintf(format, args...)
	if from := l.origin[path]; from != "" {
		text += " (set by " + from + ")"
	}
	l.problems = append(l.problems, Problem{Path: l.shown(path), Text: text})
}

func (l *loader) warn(path, format string, args ...any) {
	l.warnings = append(l.warnings, Problem{Path: l.shown(path), Text: fmt.Sprintf(format, args...)}.String())
}

// shown is the path in the words of the file at hand.
func (l *loader) shown(path string) string {
	for p := path; p != ""; {
		if as, ok := l.shownAs[p]; ok {
			return as + path[len(p):]
		}
		i := strings.LastIndexByte(p, '.')
		if i < 0 {
			break
		}
		p = p[:i]
	}
	return path
}

// show quotes a value for an error, unless it came from a place that may hold secrets.
func (l *loader) show(path, value string) string {
	if l.hidden[path] {
		return "a value that is not shown"
	}
	if len(value) > 60 {
		value = value[:60] + "…"
	}
	return fmt.Sprintf("%q", value)
}
