package shredding

import (
	"slices"

	"github.com/erpbackbone/backbone/domain/fault"
)

// Class is the kind of personal data that a field holds. Readers get permission per class.
type Class string

// The classes.
const (
	Contact  Class = "contact"
	Identity Class = "identity"
	Bank     Class = "bank"
	Tax      Class = "tax"
	Health   Class = "health"
	FreeText Class = "free_text"
)

// Classes lists every class.
func Classes() []Class { return []Class{Contact, Identity, Bank, Tax, Health, FreeText} }

// Valid reports whether the class is one of the list.
func (c Class) Valid() bool { return slices.Contains(Classes(), c) }

// KeyClass separates the keys of one subject by how long their data must be
// kept, so that one class can be erased while another is under retention. Its
// number is part of the envelope format and of the authenticated data.
type KeyClass uint8

// The key classes, one per retention class of event types.
const (
	KeyStandard   KeyClass = 0
	KeyRegulatory KeyClass = 1
	KeyPIISubject KeyClass = 2
)

var keyClassNames = [...]string{KeyStandard: "standard", KeyRegulatory: "regulatory", KeyPIISubject: "pii_subject"}

// KeyClasses lists every key class.
func KeyClasses() []KeyClass { return []KeyClass{KeyStandard, KeyRegulatory, KeyPIISubject} }

// ParseKeyClass reads the name of a retention class; "" is standard, as for event
// types. pii.key_class_invalid for any other text.
func ParseKeyClass(retention string) (KeyClass, error) {
	if retention == "" {
		return KeyStandard, nil
	}
	if i := slices.Index(keyClassNames[:], retention); i >= 0 {
		return KeyClass(i), nil
	}
	return 0, fault.New(fault.Invalid, "pii.key_class_invalid", "there is no such retention class; use standard, regulatory or pii_subject")
}

// Valid reports whether the number is one of the list.
func (c KeyClass) Valid() bool { return int(c) < len(keyClassNames) }

// String gives the name of the retention class.
func (c KeyClass) String() string {
	if c.Valid() {
		return keyClassNames[c]
	}
	return "invalid"
}
