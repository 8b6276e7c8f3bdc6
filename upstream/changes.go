package upstream

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
)

// maxLogged bounds the tools that are named in the log after one reading of a catalogue.
const maxLogged = 50

// logChanges says which tools another reading of the catalogue brought, took away or defined otherwise.
// A definition that changes after people have approved the tool is worth a look, so the log tells the two
// apart by their digests.
func (u *Upstream) logChanges(old, now *Catalogue) {
	if old == nil || now == nil {
		return
	}
	n := 0
	say := func(log func(string, ...any), msg, tool string, more ...any) {
		if n++; n <= maxLogged {
			log(msg, append([]any{"tool", clip(tool, 200)}, more...)...)
		}
	}
	before := make(map[string]*Tool, len(old.Tools))
	for i := range old.Tools {
		before[old.Tools[i].Name] = &old.Tools[i]
	}
	for i := range now.Tools {
		t := &now.Tools[i]
		was := before[t.Name]
		delete(before, t.Name)
		switch {
		case was == nil:
			say(u.log.Info, "a tool was added", t.Name, "digest", digest(t))
		case !bytes.Equal(was.Definition, t.Definition):
			say(u.log.Warn, "the definition of a tool changed", t.Name, "before", digest(was), "digest", digest(t))
		}
	}
	for i := range old.Tools {
		if t := &old.Tools[i]; before[t.Name] != nil {
			say(u.log.Info, "a tool was removed", t.Name, "digest", digest(t))
		}
	}
	if n > maxLogged {
		u.log.Warn("more tools changed than are named", "count", n-maxLogged)
	}
	for i := range listKinds {
		u.logListChanges(&listKinds[i], old, now)
	}
}

// logListChanges does the same for another list. Of prompts, which people approve like tools, those are named
// whose definition is another one; resources come and go, and are counted.
func (u *Upstream) logListChanges(k *listKind, old, now *Catalogue) {
	before := make(map[string]*Listed)
	for i := range k.of(old).Items {
		l := &k.of(old).Items[i]
		before[l.Key] = l
	}
	var added, changed int
	for i := range k.of(now).Items {
		l := &k.of(now).Items[i]
		was := before[l.Key]
		delete(before, l.Key)
		switch {
		case was == nil:
			added++
		case !bytes.Equal(was.Definition, l.Definition):
			if changed++; k.capability == "prompts" && changed <= maxLogged {
				u.log.Warn("the definition of a prompt changed", "prompt", clip(l.Key, 200), "before", digestOf(was.Definition), "digest", digestOf(l.Definition))
			}
		}
	}
	if added+changed+len(before) > 0 {
		u.log.Info("a list changed", "list", k.method, "added", added, "changed", changed, "removed", len(before))
	}
}

// digest identifies a definition in the log: the first 16 hex digits of its SHA-256.
func digest(t *Tool) string { return digestOf(t.Definition) }

func digestOf(definition []byte) string {
	sum := sha256.Sum256(definition)
	return hex.EncodeToString(sum[:8])
}
