package stream

import (
	"encoding/json"
	"iter"
	"slices"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
)

// Right is something that an access list can restrict.
type Right uint8

// The rights.
const (
	Read Right = iota
	Write
	Delete
	ChangeMetadata
)

// RightFor returns the right that an event with the action on its stream needs.
func RightFor(a event.StreamAction) Right {
	switch a {
	case event.DeleteStream, event.TombstoneStream:
		return Delete
	case event.DescribeStream:
		return ChangeMetadata
	default:
		return Write
	}
}

// unrestricted are the roles that no access list keeps out: who repairs a list that
// has locked everybody out, and who has to see everything. What they may do at all
// is the access policy's.
var unrestricted = []string{"admin", "auditor"}

// Roles gives every list with the pointer of its place in the metadata.
func (a *ACL) Roles() iter.Seq2[string, []string] {
	return func(yield func(string, []string) bool) {
		_ = a == nil || yield("/acl/read", a.Read) && yield("/acl/write", a.Write) &&
			yield("/acl/delete", a.Delete) && yield("/acl/metadata", a.Metadata)
	}
}

func (a *ACL) allowed(r Right) []string {
	switch r {
	case Read:
		return a.Read
	case Write:
		return a.Write
	case Delete:
		return a.Delete
	default:
		return a.Metadata
	}
}

// Check holds the caller's roles against the list. Fault stream.access_denied. A nil
// list and nil roles, which are those of the log itself, restrict nothing.
func (a *ACL) Check(r Right, roles []string) error {
	if a == nil || roles == nil {
		return nil
	}
	list := a.allowed(r)
	if list == nil || slices.ContainsFunc(roles, func(role string) bool { return slices.Contains(list, role) || slices.Contains(unrestricted, role) }) {
		return nil
	}
	return fault.New(fault.Forbidden, "stream.access_denied", "the stream's access list lets none of your roles do this; ask a person who may change the stream's metadata, or an administrator")
}

// CheckAccess is Check on an encoded list. A list that cannot be decoded denies access.
func CheckAccess(access []byte, r Right, roles []string) *fault.Error {
	if len(access) == 0 || roles == nil {
		return nil
	}
	var a ACL
	if json.Unmarshal(access, &a) != nil {
		a = ACL{Read: []string{}, Write: []string{}, Delete: []string{}, Metadata: []string{}}
	}
	f, _ := fault.As(a.Check(r, roles))
	return f
}
