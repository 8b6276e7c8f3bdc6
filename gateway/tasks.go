package gateway

import (
	"bytes"
	"container/list"
	"sync"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/headgate/headgate/internal/wire"
	"github.com/headgate/headgate/upstream"
)

const (
	// maxTaskOwners and maxTasks bound what is remembered of tasks: the callers that have any, and the tasks of one.
	// Those that have not been used for the longest time are forgotten first.
	maxTaskOwners = 1024
	maxTasks      = 128
	// maxTaskID bounds an id that is remembered, in bytes.
	maxTaskID = 256
)

// tasks remember which server has made which task for whom (2025-11-25, basic/utilities/tasks; the extension
// io.modelcontextprotocol/tasks). Ids may be all that a server goes by, so a task is nobody's but the caller's in whose
// answer it stood.
type tasks struct {
	mu     sync.Mutex // guards the fields below
	owners map[string]*list.Element
	order  *list.List // of *taskOwner, the one used last in front
}

type taskOwner struct {
	name  string // a caller at an endpoint
	byID  map[string]*list.Element
	order *list.List // of *task
}

type task struct {
	id string
	up *upstream.Upstream // nil where two servers have given the id
}

func newTasks() *tasks { return &tasks{owners: make(map[string]*list.Element), order: list.New()} }

// note takes down the task that a result names.
func (ts *tasks) note(owner string, up *upstream.Upstream, result jsontext.Value) {
	if !bytes.Contains(result, []byte(`"taskId"`)) {
		return
	}
	id := taskOf(result)
	if id == "" || len(id) > maxTaskID {
		return
	}
	ts.mu.Lock()
	defer ts.mu.Unlock()
	e := ts.owners[owner]
	if e == nil {
		e = ts.order.PushFront(&taskOwner{name: owner, byID: make(map[string]*list.Element), order: list.New()})
		ts.owners[owner] = e
		if ts.order.Len() > maxTaskOwners {
			last := ts.order.Back()
			delete(ts.owners, last.Value.(*taskOwner).name)
			ts.order.Remove(last)
		}
	}
	ts.order.MoveToFront(e)
	o := e.Value.(*taskOwner)
	if known := o.byID[id]; known != nil {
		if t := known.Value.(*task); t.up != up && (t.up == nil || t.up.ID() != up.ID()) {
			t.up = nil
		} else {
			t.up = up
		}
		o.order.MoveToFront(known)
		return
	}
	o.byID[id] = o.order.PushFront(&task{id, up})
	if o.order.Len() > maxTasks {
		last := o.order.Back()
		delete(o.byID, last.Value.(*task).id)
		o.order.Remove(last)
	}
}

// mentions reports whether a server's capabilities have a word in them. It is far cheaper to find out than whether a large
// result has one, and for most servers says that no result needs to be looked through.
func mentions(up *upstream.Upstream, word string) bool {
	c := up.Catalogue()
	return c != nil && bytes.Contains(c.Capabilities, []byte(word))
}

// find returns the server of a caller's task; known says that the caller has a task of this id, of one server or, if
// up is nil, of two.
func (ts *tasks) find(owner, id string) (up *upstream.Upstream, known bool) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	e := ts.owners[owner]
	if e == nil {
		return nil, false
	}
	o := e.Value.(*taskOwner)
	t := o.byID[id]
	if t == nil {
		return nil, false
	}
	ts.order.MoveToFront(e)
	o.order.MoveToFront(t)
	return t.Value.(*task).up, true
}

// taskOf returns the id of the task that a result is about, or "": results are tasks in the extension, and have one in
// 2025-11-25.
func taskOf(result jsontext.Value) string {
	obj, err := wire.ParseObject(result)
	if err != nil {
		return ""
	}
	raw, ok := obj.Get("taskId")
	if !ok {
		inner, _ := obj.Get("task")
		if obj, err = wire.ParseObject(inner); err != nil {
			return ""
		}
		raw, _ = obj.Get("taskId")
	}
	id, _ := wire.String(raw)
	return id
}
