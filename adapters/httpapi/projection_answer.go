package httpapi

import "net/http"

func (a answer) VisitListProjectionsResponse(w http.ResponseWriter) error         { return a.write(w) }
func (a answer) VisitGetProjectionResponse(w http.ResponseWriter) error           { return a.write(w) }
func (a answer) VisitConfigureProjectionResponse(w http.ResponseWriter) error     { return a.write(w) }
func (a answer) VisitGetProjectionRebuildResponse(w http.ResponseWriter) error    { return a.write(w) }
func (a answer) VisitRebuildProjectionResponse(w http.ResponseWriter) error       { return a.write(w) }
func (a answer) VisitRebuildProjectionRowsResponse(w http.ResponseWriter) error   { return a.write(w) }
func (a answer) VisitCompareProjectionResponse(w http.ResponseWriter) error       { return a.write(w) }
func (a answer) VisitSwitchProjectionResponse(w http.ResponseWriter) error        { return a.write(w) }
func (a answer) VisitRollbackProjectionResponse(w http.ResponseWriter) error      { return a.write(w) }
func (a answer) VisitTakeProjectionSnapshotResponse(w http.ResponseWriter) error  { return a.write(w) }
func (a answer) VisitCancelProjectionRebuildResponse(w http.ResponseWriter) error { return a.write(w) }
func (a answer) VisitDropProjectionVersionResponse(w http.ResponseWriter) error   { return a.write(w) }
func (a answer) VisitOperateProjectionResponse(w http.ResponseWriter) error       { return a.write(w) }
func (a answer) VisitCreateProjectionResponse(w http.ResponseWriter) error        { return a.write(w) }
func (a answer) VisitReplaceProjectionResponse(w http.ResponseWriter) error       { return a.write(w) }
func (a answer) VisitDeleteProjectionResponse(w http.ResponseWriter) error        { return a.write(w) }
func (a answer) VisitGetProjectionRowsResponse(w http.ResponseWriter) error       { return a.write(w) }
func (a answer) VisitListDeadLettersResponse(w http.ResponseWriter) error         { return a.write(w) }
