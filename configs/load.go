package configs

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
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
	// CheckRules, if not nil, is asked about the rules of all teams, so that what is wrong with them is reported
	// together with everything else. It may get teams that have other faults. The paths it gives begin with
	// teams.NAME, however the team came into the configuration.
	CheckRules func(teams map[string]*Team) []Problem
	// Previous, if not nil, is the configuration in force, and makes this load a reload: a team whose own file has
	// faults stays as it is there, or is left out if it is not, and Config.TeamErrors has the faults.
	Previous *Config
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
	cfg.Warnings = append(cfg.Warnings, warnReadable(path, cfg)...)
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

// warnReadable says so when every user of the machine can read credentials that stand in the files themselves.
func warnReadable(path string, cfg *Config) []string {
	if runtime.GOOS == "windows" {
		return nil
	}
	files := map[string]string{path: filepath.Base(path)}
	owned := map[string][]*Upstream{path: slices.Collect(maps.Values(cfg.Upstreams))}
	for _, t := range cfg.Teams {
		file := path
		if t.File != "" {
			file = t.File
			if !filepath.IsAbs(file) {
				file = filepath.Join(filepath.Dir(path), file)
			}
			files[file] = t.File
		}
		owned[file] = slices.AppendSeq(owned[file], maps.Values(t.OwnUpstreams))
	}
	var out []string
	for _, file := range slices.Sorted(maps.Keys(files)) {
		info, err := os.Stat(file)
		if err == nil && info.Mode().Perm()&0o004 != 0 && slices.ContainsFunc(owned[file], holdsCredentials) {
			out = append(out, files[file]+": holds credentials and is readable by every user; set its mode to 0600")
		}
	}
	return out
}

func holdsCredentials(u *Upstream) bool {
	if u.OAuth.ClientSecret != "" && !u.hidden["oauth.client_secret"] {
		return true
	}
	for section, values := range map[string]map[string]string{"headers": u.Headers, "env": u.Env} {
		for k, v := range values {
			if v != "" && credentialName(k) && !u.hidden[join(section, k)] {
				return true
			}
		}
	}
	return false
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
	faults    []fault
	warnings  []string
	files     map[string]bool   // files that were read, and globs of team files
	hidden    map[string]bool   // paths whose value came from ${env:…} or ${file:…}
	origin    map[string]string // paths set by a variable or an override, to the variable's name or ""
	shownAs   map[string]string // path prefixes of a host file's entries, and of teams with a file of their own, to how to show them
	teamFiles map[string]string // paths of teams with a file of their own, to their names
	given     map[string]bool   // keys outside of upstreams, auth and teams that are there
	host      bool              // the file has a host's map in place of upstreams
	failed    map[string]bool   // paths whose value could not be read
	checking  bool              // values are read, and are being checked
	upstreams map[string]*upstreamSource
	auth      *authSource // nil if the file has none
	teams     map[string]*teamSource
	// guidanceAt are the places of the entries of guidance.
	guidanceAt map[*Upstream][]string
	// teamsGiven reports that the file has teams, if only an empty map of them.
	teamsGiven bool
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
		teamFiles: map[string]string{},
		failed:    map[string]bool{},
		upstreams: map[string]*upstreamSource{},
		teams:     map[string]*teamSource{},

		guidanceAt: map[*Upstream][]string{},
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
	l.include(cfg.Include)
	l.checking = true
	l.validate(cfg)
	for _, t := range l.teams {
		t.OwnUpstreams = plain(t.own)
	}
	l.checkRules()
	fatal, passed, broken := l.sortFaults()
	if len(fatal) > 0 {
		return nil, newErrors(append(fatal, passed...))
	}
	if len(passed) > 0 {
		cfg.TeamErrors = newErrors(passed).List
	}
	if l.auth != nil {
		cfg.Auth = &l.auth.Auth
	}
	cfg.Upstreams = plain(l.upstreams)
	l.distributeHidden(cfg)
	l.assembleTeams(cfg, broken)
	for f := range l.files {
		cfg.files = append(cfg.files, f)
	}
	slices.Sort(cfg.files)
	slices.Sort(l.warnings)
	cfg.Warnings = slices.Compact(l.warnings)
	return cfg, nil
}

// plain leaves the upstreams of sources.
func plain(sources map[string]*upstreamSource) map[string]*Upstream {
	out := make(map[string]*Upstream, len(sources))
	for id, u := range sources {
		out[id] = u.Upstream
	}
	return out
}

// distributeHidden gives each part of the configuration the paths it must not print.
func (l *loader) distributeHidden(cfg *Config) {
	cfg.hidden = maps.Clone(l.hidden)
	for id, u := range cfg.Upstreams {
		u.hidden = under(l.hidden, join("upstreams", id))
	}
	for _, t := range l.teams {
		t.hidden = under(l.hidden, t.path)
		for id, u := range t.OwnUpstreams {
			u.hidden = under(t.hidden, join("own_upstreams", id))
		}
	}
}

// fault is a problem and the team whose own file has it, or "".
type fault struct {
	team string
	Problem
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
	shown, team := l.place(path)
	l.faults = append(l.faults, fault{team: team, Problem: Problem{Path: shown, Text: text}})
}

// sortFaults gives the problems that make the load fail, and those that a reload passes over with their teams.
func (l *loader) sortFaults() (fatal, passed []Problem, broken map[string]bool) {
	broken = map[string]bool{}
	for _, f := range l.faults {
		if f.team == "" || l.options.Previous == nil {
			fatal = append(fatal, f.Problem)
		} else {
			passed, broken[f.team] = append(passed, f.Problem), true
		}
	}
	return fatal, passed, broken
}

func (l *loader) warn(path, format string, args ...any) {
	shown, _ := l.place(path)
	l.warnings = append(l.warnings, Problem{Path: shown, Text: fmt.Sprintf(format, args...)}.String())
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
