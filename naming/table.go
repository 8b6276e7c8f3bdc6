package naming

import (
	"cmp"
	"slices"
)

// Item is one tool or prompt to be named: the id of its server, that server's prefix (empty for bare names),
// and the name the server gave it.
type Item struct {
	Server, Prefix, Name string
}

// Entry is an item that got its name.
type Entry struct {
	Item
	// Exposed is the name clients see; no two entries of a table share one.
	Exposed string
	// Changed reports that Exposed is not simply prefix, separator and name.
	Changed bool
	// Index is the position of the item in the argument of Build.
	Index int
}

// Withheld is an item that is not exposed, because another item has its name.
type Withheld struct {
	Item
	// Exposed is the name the item would have had.
	Exposed string
	// Index is the position of the item in the argument of Build.
	Index int
	// By is the item that has the name.
	By Item
	// Duplicate reports that the server offered the same name more than once, and this is not the first.
	Duplicate bool
}

// Table is the outcome of naming all items. It owns its slices; callers may keep and read it concurrently.
type Table struct {
	// Entries are sorted bytewise by Exposed.
	Entries []Entry
	// Withheld are sorted by server id, name and position.
	Withheld []Withheld
}

// Build names all items and settles collisions: of two items with the same exposed name the one that is first
// in order (server id, then name, both bytewise) gets it and the other is withheld. The result does not depend
// on the order of items, save that of items with the same server and name the first one counts. Nothing is
// ever overwritten, and an item's name never depends on which other items there are.
func (r Rules) Build(items []Item) Table {
	order := make([]int, len(items))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int {
		x, y := &items[a], &items[b]
		return cmp.Or(cmp.Compare(x.Server, y.Server), cmp.Compare(x.Name, y.Name), cmp.Compare(a, b))
	})

	t := Table{Entries: make([]Entry, 0, len(items))}
	owner := make(map[string]int, len(items)) // exposed name to index in items
	first, holder := -1, -1                   // the last distinct item, and the item that has its name
	for _, i := range order {
		item := items[i]
		exposed, changed := r.Exposed(item.Server, item.Prefix, item.Name)
		if first >= 0 && items[first].Server == item.Server && items[first].Name == item.Name {
			t.Withheld = append(t.Withheld, Withheld{
				Item: item, Exposed: exposed, Index: i, By: items[holder], Duplicate: true,
			})
			continue
		}
		first = i
		if by, taken := owner[exposed]; taken {
			holder = by
			t.Withheld = append(t.Withheld, Withheld{Item: item, Exposed: exposed, Index: i, By: items[by]})
			continue
		}
		holder = i
		owner[exposed] = i
		t.Entries = append(t.Entries, Entry{Item: item, Exposed: exposed, Changed: changed, Index: i})
	}
	slices.SortFunc(t.Entries, func(a, b Entry) int { return cmp.Compare(a.Exposed, b.Exposed) })
	return t
}
