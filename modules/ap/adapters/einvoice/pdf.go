package einvoice

import (
	"bytes"
	"context"
	"fmt"
	"path"
	"strings"
	"sync"
	"time"

	"github.com/pdfcpu/pdfcpu/pkg/pdfcpu"
	"github.com/pdfcpu/pdfcpu/pkg/pdfcpu/model"
	"github.com/pdfcpu/pdfcpu/pkg/pdfcpu/validate"

	"github.com/erpbackbone/backbone/adapters/xmltree"
	"github.com/erpbackbone/backbone/domain/fault"
)

// Limits of a PDF file, beside xmltree.MaxBytes for the file and for the invoice in it. They bound
// memory and time for a file that was made to waste them.
const (
	maxPDFTime    = 20 * time.Second
	maxPDFObjects = 1_000_000
	maxPDFFiles   = 100 // embedded files, the invoice among them
)

// invoiceNames are the names that Factur-X, ZUGFeRD and XRechnung give to the invoice in a
// PDF file.
var invoiceNames = codes("factur-x.xml zugferd-invoice.xml xrechnung.xml")

// withoutConfigDir keeps the library from writing its settings into the user's folder. It
// does what the library's package api does, which links much more.
var withoutConfigDir = sync.OnceFunc(func() { model.ConfigPath = "disable" })

// extractInvoice returns the invoice embedded in a PDF file, the attachment with one of the
// known names, else the only one that is XML, and the other embedded files. What the pages show is not compared with it.
// The library can be interrupted while it reads, but not while it validates, so a file that
// takes too long is left to finish alone.
func extractInvoice(data []byte) ([]byte, embeddings, error) {
	type result struct {
		invoice []byte
		beside  embeddings
		err     error
	}
	bounded, cancel := context.WithTimeout(context.Background(), maxPDFTime)
	defer cancel()
	done := make(chan result, 1)
	go func() {
		invoice, beside, err := readEmbedded(bounded, data)
		done <- result{invoice, beside, err}
	}()
	select {
	case r := <-done:
		return r.invoice, r.beside, r.err
	case <-bounded.Done():
		return nil, embeddings{}, unreadablePDF(bounded.Err())
	}
}

func readEmbedded(bounded context.Context, data []byte) (invoice []byte, beside embeddings, err error) {
	defer func() {
		// A file that the library does not expect must not end the import of other files.
		if p := recover(); p != nil {
			invoice, beside, err = nil, embeddings{}, unreadablePDF(fmt.Errorf("pdfcpu: %v", p))
		}
	}()
	withoutConfigDir()
	settings := model.NewDefaultConfiguration()
	settings.Cmd = model.EXTRACTATTACHMENTS
	settings.Offline = true
	settings.Limits.MaxStreamBytes, settings.Limits.MaxDecodeBytes = xmltree.MaxBytes, xmltree.MaxBytes
	settings.Limits.MaxObjectCount, settings.Limits.MaxXRefEntries = maxPDFObjects, maxPDFObjects
	settings.Limits.MaxObjectStreamCount = maxPDFObjects
	document, err := pdfcpu.ReadWithContext(bounded, bytes.NewReader(data), settings)
	if err != nil {
		return nil, beside, unreadablePDF(err)
	}
	// Validation also builds the directory of embedded files.
	if err := validate.XRefTable(document); err != nil {
		return nil, beside, unreadablePDF(err)
	}
	files, err := document.ListAttachments()
	if err != nil {
		return nil, beside, unreadablePDF(err)
	}
	file, err := selectInvoice(files)
	if err != nil {
		return nil, beside, err
	}
	if invoice, err = unpack(document, file.ID, xmltree.MaxBytes); err != nil {
		return nil, beside, err
	}
	return invoice, unpackBeside(bounded, document, files, file.ID), nil
}

// unpackBeside returns the embedded files but for the invoice, with at most xmltree.MaxBytes
// together. The invoice is booked without those that cannot be read.
func unpackBeside(bounded context.Context, document *model.Context, files []model.Attachment, invoice string) embeddings {
	beside, left := embeddings{leftOut: len(files) > maxPDFFiles}, int64(xmltree.MaxBytes)
	for _, f := range files[:min(len(files), maxPDFFiles)] {
		if f.ID == invoice {
			continue
		}
		if bounded.Err() != nil || left == 0 {
			beside.leftOut = true
			break
		}
		content, err := unpackSafely(document, f.ID, left)
		if err != nil {
			beside.leftOut = true
			continue
		}
		if len(content) > 0 {
			left -= int64(len(content))
			beside.files = append(beside.files, embedding{f.FileName, content})
		}
	}
	return beside
}

// unpackSafely is unpack for a file without which the invoice is booked: a panic of the library is an
// error.
func unpackSafely(document *model.Context, id string, limit int64) (content []byte, err error) {
	defer func() {
		if p := recover(); p != nil {
			content, err = nil, unreadablePDF(fmt.Errorf("pdfcpu: %v", p))
		}
	}()
	return unpack(document, id, limit)
}

// unpack returns the content of an embedded file. The library's own function for this takes
// no limit.
func unpack(document *model.Context, id string, limit int64) ([]byte, error) {
	specification, found := document.Names["EmbeddedFiles"].Value(id)
	if !found {
		return nil, unreadablePDF(nil)
	}
	d, err := document.DereferenceDict(specification)
	if err != nil {
		return nil, unreadablePDF(err)
	}
	embedded, _ := d.Find("EF")
	if d, err = document.DereferenceDict(embedded); err != nil {
		return nil, unreadablePDF(err)
	}
	for _, key := range []string{"UF", "F"} {
		reference, found := d.Find(key)
		if !found {
			continue
		}
		stream, _, err := document.DereferenceStreamDict(reference)
		if err != nil || stream == nil {
			return nil, unreadablePDF(err)
		}
		if err := stream.DecodeWithLimit(limit); err != nil {
			return nil, unreadablePDF(err)
		}
		if int64(len(stream.Content)) > limit {
			return nil, unreadablePDF(nil)
		}
		return stream.Content, nil
	}
	return nil, unreadablePDF(nil)
}

// selectInvoice chooses the attachment that is the invoice.
func selectInvoice(files []model.Attachment) (model.Attachment, error) {
	var named, other []model.Attachment
	for _, f := range files[:min(len(files), maxPDFFiles)] {
		switch name := strings.ToLower(path.Base(strings.ReplaceAll(f.FileName, `\`, "/"))); {
		case invoiceNames.contains(name):
			named = append(named, f)
		case strings.HasSuffix(name, ".xml"):
			other = append(other, f)
		}
	}
	if len(named) == 0 {
		named = other
	}
	switch len(named) {
	case 0:
		return model.Attachment{}, unsupported("PDF without an embedded invoice")
	case 1:
		return named[0], nil
	default:
		return model.Attachment{}, fault.New(fault.Invalid, CodePDFAmbiguous,
			"The PDF file has %d embedded files that may be the invoice. Ask the sender for a file with one.", len(named)).
			With("files", len(named))
	}
}

// unreadablePDF refuses a file that the library cannot read. The error may quote the file, so
// it is only the cause.
func unreadablePDF(cause error) *fault.Error {
	return fault.New(fault.Invalid, CodePDFUnreadable,
		"The PDF file is damaged, encrypted, or needs more than the limits of size and time. Ask the sender for the invoice as an XML file.").
		WithCause(cause)
}
