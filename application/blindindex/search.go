package blindindex

import (
	"context"
	"crypto/sha256"
	"fmt"

	"github.com/erpbackbone/backbone/domain/blindindex"
	"github.com/erpbackbone/backbone/domain/disclosure"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/shredding"
	"github.com/erpbackbone/backbone/ports"
)

// Query is a search. Its text is a personal value: it is neither stored nor logged.
type Query struct {
	Kind     blindindex.Kind
	Text     string
	Entities []ports.LegalEntity // in whose logs
	Cursor   string              // continues behind a page
	Limit    int                 // persons of a page, at least 1
}

// Person is a person that was found.
type Person struct {
	Subject shredding.Subject
	Places  []Place
}

// Place is where values of the person stand that fit.
type Place struct {
	LegalEntity string
	Type        string // of the events, or of the intents
	Path        string // in their data, or payload
	Class       shredding.Class
}

// Found is a page of persons by subject.
type Found struct {
	Persons []Person
	Next    string // cursor of the next page; "" after the last
	// Behind are the legal entities with events that the index has not read yet.
	Behind []string
}

// Search finds the persons of the principal's tenant in whose records all terms of the text
// stand. It records the search for each of them, or once if there are none, before it answers.
// Faults: personal_search.text_invalid, cursor.malformed, cursor.foreign, those of the key
// store and of the record.
func (x *Index) Search(ctx context.Context, p ports.Principal, why disclosure.Purpose, q Query) (found Found, err error) {
	terms := blindindex.Terms(q.Kind, q.Text[:min(len(q.Text), blindindex.MaxText)])
	if len(q.Text) > blindindex.MaxText || len(terms) == 0 {
		return found, fault.New(fault.Invalid, "personal_search.text_invalid",
			"a searched text has letters or digits and at most %d bytes; give words of a name, an address or a number", blindindex.MaxText).WithField("/" + q.Kind.String())
	}
	codes := make(map[event.PartitionID]string, len(q.Entities))
	search := ports.SubjectQuery{Kind: q.Kind, Limit: q.Limit + 1}
	for _, le := range q.Entities {
		codes[le.Partition] = le.Code
		search.Partitions = append(search.Partitions, le.Partition)
	}
	for _, term := range terms {
		hash, err := x.hash(ctx, p.TenantID, q.Kind.String(), term)
		if err != nil {
			return found, err
		}
		search.Hashes = append(search.Hashes, hash)
	}
	digest := queryDigest(search)
	if q.Cursor != "" {
		after, err := x.Cursors.OpenText(q.Cursor, p.TenantID, digest)
		if err != nil {
			return found, err
		}
		search.After = shredding.Subject(after)
	}
	if found.Behind, err = x.behind(ctx, p.TenantID, q.Entities); err != nil {
		return found, err
	}
	entries, err := x.Store.FindSubjects(ctx, search)
	if err != nil {
		return found, err
	}
	for _, e := range entries {
		last := len(found.Persons) - 1
		if last < 0 || found.Persons[last].Subject != e.Subject {
			if len(found.Persons) == q.Limit {
				found.Next = x.Cursors.SealText(p.TenantID, digest, string(found.Persons[last].Subject))
				break
			}
			found.Persons = append(found.Persons, Person{Subject: e.Subject})
			last++
		}
		found.Persons[last].Places = append(found.Persons[last].Places, Place{LegalEntity: codes[e.Partition], Type: e.Type, Path: e.Path, Class: e.Class})
	}
	return found, x.record(ctx, p, why, found)
}

// record records a search: the persons that it shows and in how many places.
func (x *Index) record(ctx context.Context, p ports.Principal, why disclosure.Purpose, found Found) error {
	accesses := []disclosure.Access{{Kind: disclosure.PersonalSearch}}
	if len(found.Persons) > 0 {
		accesses = accesses[:0]
	}
	for _, person := range found.Persons {
		accesses = append(accesses, disclosure.Access{Kind: disclosure.PersonalSearch, Subject: person.Subject, Values: len(person.Places)})
	}
	return x.Accesses.Record(ctx, p, why, accesses...)
}

// behind lists the codes of the tenant's logs that the index has not read to their heads, or by other
// rules or under another secret.
func (x *Index) behind(ctx context.Context, tenantID string, entities []ports.LegalEntity) (codes []string, err error) {
	key, err := x.key(ctx, tenantID)
	if err != nil {
		return nil, err
	}
	positions, heads, err := x.progress(ctx, entities)
	if err != nil {
		return nil, err
	}
	for _, le := range entities {
		at, head := positions[le.Partition], heads[le.Partition].Sequence
		if head > 0 && (at.Sequence < head || at.Key != key) {
			codes = append(codes, le.Code)
		}
	}
	return codes, nil
}

// queryDigest binds a cursor to its query. Hashes stand for the text.
func queryDigest(q ports.SubjectQuery) []byte {
	sum := sha256.Sum256(fmt.Appendf(nil, "personal-search\x00%d\x00%x\x00%d", q.Kind, q.Hashes, q.Partitions))
	return sum[:]
}
