package httpapi

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strconv"
	"time"

	"github.com/labstack/echo/v4"
)

// encode is encoding/json without the escapes for HTML, so that raw documents
// keep their characters.
func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// answer is a successful response of any operation. The generated code asks each
// operation for a type of its own; this one serves them all.
type answer struct {
	status   int
	media    string // "" is JSON
	body     []byte
	replayed bool
	cache    string // Cache-Control; "" is as for every answer
}

// reply encodes a value of the generated models.
func reply(status int, v any) (answer, error) {
	body, err := encode(v)
	return answer{status: status, body: body}, err
}

func (a answer) write(w http.ResponseWriter) error {
	h := w.Header()
	if a.media == "" {
		a.media = echo.MIMEApplicationJSON
	}
	h.Set(echo.HeaderContentType, a.media)
	h.Set(echo.HeaderContentLength, strconv.Itoa(len(a.body)))
	if a.replayed {
		h.Set("Idempotency-Replayed", "true")
	}
	if a.cache != "" {
		h.Set(echo.HeaderCacheControl, a.cache)
		h.Add(echo.HeaderVary, echo.HeaderAuthorization)
	}
	w.WriteHeader(a.status)
	_, _ = w.Write(a.body) // if the caller is gone nobody is left to tell
	return nil
}

func (a answer) VisitAppendEventsResponse(w http.ResponseWriter) error           { return a.write(w) }
func (a answer) VisitListEventsResponse(w http.ResponseWriter) error             { return a.write(w) }
func (a answer) VisitReadStreamResponse(w http.ResponseWriter) error             { return a.write(w) }
func (a answer) VisitReadAllEventsResponse(w http.ResponseWriter) error          { return a.write(w) }
func (a answer) VisitAppendToStreamResponse(w http.ResponseWriter) error         { return a.write(w) }
func (a answer) VisitDeleteStreamResponse(w http.ResponseWriter) error           { return a.write(w) }
func (a answer) VisitGetStreamMetadataResponse(w http.ResponseWriter) error      { return a.write(w) }
func (a answer) VisitSetStreamMetadataResponse(w http.ResponseWriter) error      { return a.write(w) }
func (a answer) VisitGetEventResponse(w http.ResponseWriter) error               { return a.write(w) }
func (a answer) VisitGetLineageResponse(w http.ResponseWriter) error             { return a.write(w) }
func (a answer) VisitRegisterEventTypeResponse(w http.ResponseWriter) error      { return a.write(w) }
func (a answer) VisitCheckEventTypeResponse(w http.ResponseWriter) error         { return a.write(w) }
func (a answer) VisitDeprecateEventTypeResponse(w http.ResponseWriter) error     { return a.write(w) }
func (a answer) VisitReactivateEventTypeResponse(w http.ResponseWriter) error    { return a.write(w) }
func (a answer) VisitGetEventTypeHistoryResponse(w http.ResponseWriter) error    { return a.write(w) }
func (a answer) VisitListEventTypeChangesResponse(w http.ResponseWriter) error   { return a.write(w) }
func (a answer) VisitListEventTypesResponse(w http.ResponseWriter) error         { return a.write(w) }
func (a answer) VisitGetEventTypeResponse(w http.ResponseWriter) error           { return a.write(w) }
func (a answer) VisitSubmitIntentResponse(w http.ResponseWriter) error           { return a.write(w) }
func (a answer) VisitGetIntentResponse(w http.ResponseWriter) error              { return a.write(w) }
func (a answer) VisitApproveIntentResponse(w http.ResponseWriter) error          { return a.write(w) }
func (a answer) VisitRejectIntentResponse(w http.ResponseWriter) error           { return a.write(w) }
func (a answer) VisitCreateLegalEntityResponse(w http.ResponseWriter) error      { return a.write(w) }
func (a answer) VisitListLegalEntitiesResponse(w http.ResponseWriter) error      { return a.write(w) }
func (a answer) VisitRequestErasureResponse(w http.ResponseWriter) error         { return a.write(w) }
func (a answer) VisitListErasureRequestsResponse(w http.ResponseWriter) error    { return a.write(w) }
func (a answer) VisitGetErasureRequestResponse(w http.ResponseWriter) error      { return a.write(w) }
func (a answer) VisitApproveErasureRequestResponse(w http.ResponseWriter) error  { return a.write(w) }
func (a answer) VisitRejectErasureRequestResponse(w http.ResponseWriter) error   { return a.write(w) }
func (a answer) VisitWithdrawErasureRequestResponse(w http.ResponseWriter) error { return a.write(w) }
func (a answer) VisitGetErasureCertificateResponse(w http.ResponseWriter) error  { return a.write(w) }
func (a answer) VisitPlaceLegalHoldResponse(w http.ResponseWriter) error         { return a.write(w) }
func (a answer) VisitListLegalHoldsResponse(w http.ResponseWriter) error         { return a.write(w) }
func (a answer) VisitReleaseLegalHoldResponse(w http.ResponseWriter) error       { return a.write(w) }
func (a answer) VisitCreateSubscriptionResponse(w http.ResponseWriter) error     { return a.write(w) }
func (a answer) VisitListSubscriptionsResponse(w http.ResponseWriter) error      { return a.write(w) }
func (a answer) VisitGetSubscriptionResponse(w http.ResponseWriter) error        { return a.write(w) }
func (a answer) VisitDeleteSubscriptionResponse(w http.ResponseWriter) error     { return a.write(w) }
func (a answer) VisitChangeSubscriptionResponse(w http.ResponseWriter) error     { return a.write(w) }
func (a answer) VisitPauseSubscriptionResponse(w http.ResponseWriter) error      { return a.write(w) }
func (a answer) VisitResumeSubscriptionResponse(w http.ResponseWriter) error     { return a.write(w) }
func (a answer) VisitResetSubscriptionResponse(w http.ResponseWriter) error      { return a.write(w) }
func (a answer) VisitPollSubscriptionResponse(w http.ResponseWriter) error       { return a.write(w) }
func (a answer) VisitAcknowledgeEventsResponse(w http.ResponseWriter) error      { return a.write(w) }
func (a answer) VisitRefuseEventsResponse(w http.ResponseWriter) error           { return a.write(w) }
func (a answer) VisitListParkedMessagesResponse(w http.ResponseWriter) error     { return a.write(w) }
func (a answer) VisitListParkedGroupsResponse(w http.ResponseWriter) error       { return a.write(w) }
func (a answer) VisitGetParkedMessageResponse(w http.ResponseWriter) error       { return a.write(w) }
func (a answer) VisitReplayParkedMessagesResponse(w http.ResponseWriter) error   { return a.write(w) }
func (a answer) VisitDiscardParkedMessagesResponse(w http.ResponseWriter) error  { return a.write(w) }
func (a answer) VisitListParkedDecisionsResponse(w http.ResponseWriter) error    { return a.write(w) }
func (a answer) VisitGetDocumentResponse(w http.ResponseWriter) error            { return a.write(w) }
func (a answer) VisitGetLivenessResponse(w http.ResponseWriter) error            { return a.write(w) }
func (a answer) VisitGetReadinessResponse(w http.ResponseWriter) error           { return a.write(w) }

// timeLayout is RFC 3339 with microseconds.
const timeLayout = "2006-01-02T15:04:05.000000Z"

func timeText(t time.Time) string { return t.UTC().Format(timeLayout) }

func sequenceText[N ~uint64](n N) string { return strconv.FormatUint(uint64(n), 10) }

// list makes sure that an empty list is written as [].
func list[T any](items []T) []T {
	if items == nil {
		return []T{}
	}
	return items
}
