package xmltree

import (
	"strconv"
	"strings"
)

// Element is one element of a file: a value with its text, or a group with its children.
// Only elements that the Dialect keeps are in the tree.
type Element struct {
	Space      string // namespace URI
	Name       string // local name, "LineExtensionAmount"
	Tag        string // name with the usual prefix, "cbc:LineExtensionAmount"
	Text       string // text with blanks collapsed; empty for groups
	Line       int    // line in the file where the element starts, from 1
	Parent     *Element
	Children   []*Element
	Attributes []Attribute
	Content    *Content // of an embedded file
	// Cleaned reports that Text lacks characters of the file that a reader does not see: soft
	// hyphens, controls of direction, leftovers of another encoding.
	Cleaned bool
	// Origin is the element that holds the value, if this one was converted from a tree of
	// another dialect.
	Origin *Element

	index    int                   // among siblings of the same name, from 1
	repeated bool                  // a sibling has the same name
	byTag    map[string][]*Element // of the root only: the elements below it, in document order
}

// Attribute is an attribute without namespace.
type Attribute struct{ Name, Value string }

// Content has the digest and size of an embedded file, and its bytes if the Dialect keeps them.
type Content struct {
	SHA256 string
	Size   int64
	Valid  bool
	Bytes  []byte
}

// Attribute gives the value of an attribute without namespace, "" if absent or not kept. It
// may be called on nil.
func (e *Element) Attribute(name string) string {
	if e == nil {
		return ""
	}
	for _, a := range e.Attributes {
		if a.Name == name {
			return a.Value
		}
	}
	return ""
}

// Path gives the position of the element in its file, with the usual prefixes, and an index
// from 1 where siblings share a name:
// "/Invoice/cac:InvoiceLine[2]/cbc:LineExtensionAmount".
func (e *Element) Path() string {
	if e == nil {
		return ""
	}
	if e.Origin != nil {
		return e.Origin.Path()
	}
	if e.Parent == nil {
		return "/" + e.Name
	}
	path := e.Parent.Path() + "/" + e.Tag
	if e.repeated {
		path += "[" + strconv.Itoa(e.index) + "]"
	}
	return path
}

// Find returns the first element down the path of tags, nil if there is none. It may be
// called on nil.
func (e *Element) Find(tags ...string) *Element {
next:
	for _, tag := range tags {
		if e == nil {
			return nil
		}
		for _, c := range e.Children {
			if c.Tag == tag {
				e = c
				continue next
			}
		}
		return nil
	}
	return e
}

// All returns every element down the path of tags, in document order.
func (e *Element) All(tags ...string) []*Element {
	if e == nil {
		return nil
	}
	return e.appendAll(nil, tags)
}

func (e *Element) appendAll(out []*Element, tags []string) []*Element {
	if len(tags) == 0 {
		return append(out, e)
	}
	for _, c := range e.Children {
		if c.Tag == tags[0] {
			out = c.appendAll(out, tags[1:])
		}
	}
	return out
}

// Value gives the text of the first element down the path of tags, "" if the element is
// absent or holds a placeholder.
func (e *Element) Value(tags ...string) string {
	if e = e.Find(tags...); e == nil || isPlaceholder(e.Text) {
		return ""
	}
	return e.Text
}

// Walk calls visit for the element and everything below, in document order.
func (e *Element) Walk(visit func(*Element)) {
	visit(e)
	for _, c := range e.Children {
		c.Walk(visit)
	}
}

// BuildIndex lists the elements below the root by tag, so that ByTag need not walk the tree.
func (e *Element) BuildIndex() {
	e.byTag = map[string][]*Element{}
	e.Walk(func(below *Element) { e.byTag[below.Tag] = append(e.byTag[below.Tag], below) })
}

// ByTag returns every element with the tag, the root included, in document order. It may be
// called on a root whose index was built.
func (e *Element) ByTag(tag string) []*Element { return e.byTag[tag] }

// isPlaceholder reports whether a text stands for an absent value, as senders write where
// their software requires one.
func isPlaceholder(s string) bool {
	return s == "" || s == "-" || strings.EqualFold(s, "n/a")
}
