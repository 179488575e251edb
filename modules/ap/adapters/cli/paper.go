package cli

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"os"

	"github.com/erpbackbone/backbone/adapters/client"
	"github.com/erpbackbone/backbone/modules/ap/adapters/einvoice"
)

// keptPapers are the ids of a document's papers.
type keptPapers struct {
	document    string
	attachments []string // in the order of the document's
}

// keepPapers keeps a document as it was received, for ten years or until the erasure of its vendor after
// them: its file, or its part of a CSV file. Each of its attachments is kept beside it, so that a reader
// opens it without the file.
func (r *run) keepPapers(p *inputFile) (kept keptPapers, err error) {
	if p.content != nil {
		kept.document, err = r.keepPaper(p, "text/csv", p.content)
		return kept, err
	}
	file, err := readAgain(p)
	if err != nil {
		return kept, err
	}
	mediaType := "application/xml"
	if bytes.HasPrefix(file, []byte("%PDF-")) {
		mediaType = "application/pdf"
	}
	if kept.document, err = r.keepPaper(p, mediaType, file); err != nil || len(p.document.Attachments) == 0 {
		return kept, err
	}
	attachments, err := einvoice.ReadAttachments(bytes.NewReader(file))
	if err != nil {
		return kept, err
	}
	ids := map[string]string{} // by digest: the same bytes are one paper
	for _, a := range attachments {
		if ids[a.SHA256] == "" {
			if ids[a.SHA256], err = r.keepPaper(p, a.ContentType, a.Bytes); err != nil {
				return kept, err
			}
		}
	}
	for _, a := range p.document.Attachments {
		kept.attachments = append(kept.attachments, ids[a.SHA256])
	}
	return kept, nil
}

func (r *run) keepPaper(p *inputFile, mediaType string, file []byte) (id string, err error) {
	params := client.KeepPaperParams{LegalEntity: r.LegalEntity, Subject: "vendor:" + p.result.VendorID, Retention: client.RetentionRegulatory, MediaType: mediaType}
	kept, err := withRetries(r, func(bool) (client.Paper, error) { return r.papers.KeepPaper(r.requests, params, file) })
	return kept.ID, err
}

// readAgain reads a file that was read before, so that files that wait take no memory.
func readAgain(p *inputFile) ([]byte, error) {
	file, err := os.ReadFile(p.result.File)
	if err != nil {
		return nil, &fileError{err}
	}
	if digest := sha256.Sum256(file); hex.EncodeToString(digest[:]) != p.document.SHA256 {
		return nil, &fileError{errors.New("it changed while it was imported")}
	}
	return file, nil
}
