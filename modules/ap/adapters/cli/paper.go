package cli

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"os"

	"github.com/erpbackbone/backbone/adapters/client"
)

// keepPaper keeps a document as it was received, for ten years or until the erasure of its vendor after
// them: its file, or its part of a CSV file.
func (r *run) keepPaper(p *inputFile) (id string, err error) {
	params := client.KeepPaperParams{LegalEntity: r.LegalEntity, Subject: "vendor:" + p.result.VendorID, Retention: client.RetentionRegulatory, MediaType: "text/csv"}
	file := p.content
	if file == nil {
		if file, err = readAgain(p); err != nil {
			return "", err
		}
		params.MediaType = "application/xml"
		if bytes.HasPrefix(file, []byte("%PDF-")) {
			params.MediaType = "application/pdf"
		}
	}
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
