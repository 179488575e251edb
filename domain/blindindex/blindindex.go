// Package blindindex describes the index by which officers find a person: keyed hashes of names,
// e-mail addresses and telephone numbers. It says which values are in it, and what makes two of
// them equal.
package blindindex

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"unicode"

	"golang.org/x/text/cases"
	"golang.org/x/text/unicode/norm"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/shredding"
)

// Kind says what is searched for.
type Kind uint8

// The kinds, with the numbers under which they are stored.
const (
	Name  Kind = 1
	Email Kind = 2
	Phone Kind = 3
)

// String names the kind in keys of hashes, which it must never change.
func (k Kind) String() string {
	switch k {
	case Name:
		return string(shredding.DatumName)
	case Email:
		return string(shredding.DatumEmail)
	case Phone:
		return string(shredding.DatumPhone)
	default:
		return ""
	}
}

// kindOf returns the kind of what a member holds, 0 for none.
func kindOf(member string) Kind {
	switch shredding.DatumOf(member) {
	case shredding.DatumName:
		return Name
	case shredding.DatumEmail:
		return Email
	case shredding.DatumPhone:
		return Phone
	default:
		return 0
	}
}

// Rules is the version of the rules of this package. An index by other rules is built again.
const Rules = "blind-index/v2"

// IsSearched reports whether values of a class are in the index.
func IsSearched(c shredding.Class) bool { return c == shredding.Identity || c == shredding.Contact }

// HashSize is the size of a hash in bytes. It saves space and protects nothing.
const HashSize = 8

// Hash is a truncated HMAC-SHA-256 of a term.
type Hash [HashSize]byte

// Entry says that a term stands in records of a person.
type Entry struct {
	Partition event.PartitionID
	Kind      Kind
	Hash      Hash
	Subject   shredding.Subject
	KeyClass  shredding.KeyClass // of the key that the values are sealed with
	Class     shredding.Class
	Type      string // of the events, or of the intents
	Path      string // of the values, as the type declares it, such as $.contacts[*].email
}

// Bounds of what is indexed and searched.
const (
	MaxText  = 500  // bytes of a searched text
	MaxTerms = 1000 // of one event or intent, and texts of one sealed value; further ones are not found
	maxTerms = 32   // of one text; further words of a name are not found
)

// Terms are the normalized forms by which a text is found: each word of a name, the whole of
// an address, the digits of a number. The text is normalized by Unicode NFKC and case folding, so that
// "ＭＥＹＥＲ" is found as "Meyer". None if nothing of it can be searched for.
func Terms(k Kind, text string) []string {
	text = norm.NFKC.String(cases.Fold().String(norm.NFKC.String(text)))
	var terms []string
	switch k {
	case Name:
		terms = strings.FieldsFunc(text, func(r rune) bool {
			return !unicode.IsLetter(r) && !unicode.IsNumber(r) && !unicode.IsMark(r)
		})
	case Email:
		terms = []string{strings.TrimSpace(text)}
	case Phone:
		digits := strings.Map(func(r rune) rune {
			if r < '0' || r > '9' {
				return -1
			}
			return r
		}, text)
		terms = []string{strings.TrimLeft(digits, "0")} // 0049 and +49 are the same
	}
	slices.Sort(terms)
	terms = slices.DeleteFunc(slices.Compact(terms), func(t string) bool { return t == "" })
	return terms[:min(len(terms), maxTerms)]
}

// Value is a text in an opened value.
type Value struct {
	Kind Kind
	Text string
}

// Values lists the searchable texts of an opened personal value at a declared path, by the names of
// the members that hold them. The value may be a whole object. One that is masked or redacted has
// none. At most MaxTerms are listed, members of an object by name. Names of members in a value are personal text themselves, so no path leads below it.
func Values(path string, value []byte) []Value {
	if text := string(value); text == shredding.Redacted || text == shredding.Masked {
		return nil
	}
	decoder := json.NewDecoder(bytes.NewReader(value))
	decoder.UseNumber()
	var decoded any
	if decoder.Decode(&decoded) != nil {
		return nil
	}
	member := strings.ReplaceAll(path[strings.LastIndexByte(path, '.')+1:], event.EachElement, "")
	return appendValues(nil, member, decoded)
}

func appendValues(out []Value, member string, value any) []Value {
	if len(out) == MaxTerms {
		return out
	}
	switch v := value.(type) {
	case string:
		if k := kindOf(member); k != 0 {
			out = append(out, Value{Kind: k, Text: v})
		}
	case []any:
		for _, element := range v {
			out = appendValues(out, member, element)
		}
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(v)) {
			out = appendValues(out, name, v[name])
		}
	}
	return out
}

// Moved says that another node has worked on the index of a partition since it was read.
func Moved() error {
	return fault.New(fault.Conflict, CodeMoved, "another node has moved the index of personal data on; read it again")
}

// Behind says that the index of a partition has not read an event yet.
func Behind() error {
	return fault.New(fault.Unavailable, CodeBehind, "the index of personal data has not read so far yet; try again in a moment")
}

// The codes of Moved and Behind.
const (
	CodeMoved  = "blind_index.moved"
	CodeBehind = "blind_index.behind"
)
