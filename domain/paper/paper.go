// Package paper says what a kept paper is: a file as it was received, such as an invoice, whose
// bytes are sealed beside the log. Its event has what is known of it; [Paper] is the state of
// its stream. Modules name papers by their ids. application/papers keeps and opens them.
package paper

import (
	"encoding/json"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/shredding"
)

// The events that keep a paper, the only ones of its stream. They differ in retention: a kept paper
// goes with an erasure of its subject, a retained one after ten years.
const (
	Kept     = "backbone.paper.kept"
	Retained = "backbone.paper.retained"
)

// Names and limits of papers.
const (
	StreamType  = "backbone.paper" // the id of a stream is that of its paper
	RoleSubject = "subject"        // of the entity that a paper is about: the reference decides whose erasure reaches it
	// MaxBytes is the largest paper. Keeping or showing one takes a few times its size in memory.
	MaxBytes = 20 << 20
)

// MediaTypes are the types of files that are kept, each with the extension of its file names. None of
// them is shown by a browser as a page of the server: papers are answered as attachments.
var MediaTypes = map[string]string{
	"application/pdf": "pdf",
	"application/xml": "xml",
	"image/jpeg":      "jpg",
	"image/png":       "png",
	"image/tiff":      "tif",
	"text/csv":        "csv",
	"application/zip": "zip",
	"application/vnd.openxmlformats-officedocument.spreadsheetml.sheet": "xlsx",
	"application/vnd.oasis.opendocument.spreadsheet":                    "ods",
	"application/octet-stream":                                          "bin",
}

// Data is the data of the events.
type Data struct {
	MediaType string `json:"media_type"`
	SizeBytes int64  `json:"size_bytes"`
	// ContentSHA256 is the digest of the sealed bytes, by which they are stored.
	ContentSHA256 string `json:"content_sha256"`
	// Original is an Original, sealed where it is stored.
	Original json.RawMessage `json:"original"`
}

// Original is what only those may know who may see the paper.
type Original struct {
	SHA256 string `json:"sha256"` // of the bytes as they were received
	Secret string `json:"secret"` // from which their key is derived, base64url
}

// Paper is the state of the stream of a paper.
type Paper struct {
	IsKept    bool // false: there is no such paper
	Subject   shredding.Subject
	MediaType string
	SizeBytes int64
}

// Apply folds an event of the stream.
func (p *Paper) Apply(e event.Recorded, data []byte) error {
	if e.Type != Kept && e.Type != Retained {
		return nil
	}
	var d Data
	if err := json.Unmarshal(data, &d); err != nil {
		return err
	}
	body, err := e.Body()
	if err != nil {
		return err
	}
	p.IsKept, p.MediaType, p.SizeBytes, p.Subject = true, d.MediaType, d.SizeBytes, SubjectOf(body.EntityRefs)
	return nil
}

// Clone returns an independent copy.
func (p *Paper) Clone() *Paper {
	c := *p
	return &c
}

// SubjectOf returns the subject among the references of an event, "" if there is none.
func SubjectOf(entities []event.EntityRef) shredding.Subject {
	for _, e := range entities {
		if e.Role == RoleSubject {
			return shredding.Subject(e.Type + ":" + e.ID)
		}
	}
	return ""
}

// Stream is the stream of a paper.
func Stream(id string) event.StreamID { return event.StreamID{Type: StreamType, ID: id} }

// NotFound is the fault for an id that names no paper of the legal entity.
func NotFound() *fault.Error {
	return fault.New(fault.NotFound, "paper.not_found", "there is no paper with this id that you may see; check id and legal entity")
}

// ContentMissing is the fault for an event whose sealed bytes are not stored.
func ContentMissing() *fault.Error {
	return fault.New(fault.Internal, "paper.content_missing", "the bytes of this paper are missing or were changed; run `backbone verify` and restore them from a backup")
}
