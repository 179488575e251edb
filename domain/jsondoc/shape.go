package jsondoc

import (
	"cmp"
	"unicode/utf8"

	"github.com/erpbackbone/backbone/domain/fault"
)

// Shape bounds the lists and objects of a document by their place in it, so that Check refuses a
// list of too many members before a decoder makes a Go value of each. A nil Shape bounds nothing.
type Shape struct {
	Max  int    // members of this list or object; 0: bounded by Limits.Nodes only
	Code string // of the refusal; "": json.too_many_members
	Item *Shape // of each element of this list, or of each member of this object that has no shape of its own

	members map[string]*Shape // of the members of this object, by folded name
}

// SetMember gives the member of an object its shape. Names are compared as Check compares them,
// because encoding/json decodes a member in other capitals too.
func (s *Shape) SetMember(name string, member *Shape) {
	if s.members == nil {
		s.members = map[string]*Shape{}
	}
	s.members[foldName(name)] = member
}

// Bounds reports whether the shape bounds anything.
func (s *Shape) Bounds() bool {
	return s != nil && (s.Max > 0 || s.Item != nil || len(s.members) > 0)
}

func foldName(name string) string {
	folded := make([]byte, 0, len(name))
	for _, r := range name {
		folded = utf8.AppendRune(folded, fold(r))
	}
	return string(folded)
}

// enterItem prepares for the next element of a list.
func (s *scanner) enterItem(f *frame) error {
	s.next = nil
	if f.shape == nil {
		return nil
	}
	s.next = f.shape.Item
	return s.checkCount(f, f.index+1)
}

// enterMember prepares for the value of a member of an object.
func (s *scanner) enterMember(f *frame, folded []byte) error {
	s.next = nil
	if f.shape == nil {
		return nil
	}
	f.index++
	s.next = cmp.Or(f.shape.members[string(folded)], f.shape.Item)
	return s.checkCount(f, f.index)
}

// checkCount refuses a list or object with more members than its shape allows.
func (s *scanner) checkCount(f *frame, members int) error {
	limit := f.shape.Max
	if limit == 0 || members <= limit {
		return nil
	}
	code := cmp.Or(f.shape.Code, "json.too_many_members")
	s.frames = s.frames[:len(s.frames)-1] // the finding belongs to the list, not to a member
	return fault.New(fault.TooLarge, code, "there may be at most %d members here; send less at once", limit).
		WithField(s.pointer()).With("limit", limit).With("offset", s.pos)
}
