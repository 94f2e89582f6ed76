//! The status record as another thread sees it.

use std::sync::mpsc;
use std::thread;

use dacapo::{CaptureStatus, StreamId, WindowId, WindowPhase};

/// Everything that a status says, checked against itself.
pub fn view(status: &CaptureStatus) -> Vec<(WindowId, WindowPhase)> {
    let windows = status.windows();
    let recording = windows.iter().filter(|(_, phase)| *phase == WindowPhase::Recording).count();
    assert_eq!((status.active_count(), status.recording_count()), (windows.len(), recording));
    assert_eq!((status.any_active(), status.any_recording()), (!windows.is_empty(), recording > 0));
    assert!(windows.iter().all(|(window, _)| status.is_capturing(window.stream())));
    windows
}

/// A thread that looks at a status whenever it is asked to.
pub struct Watcher {
    ask: mpsc::Sender<StreamId>,
    told: mpsc::Receiver<(Option<WindowPhase>, bool)>,
}

impl Watcher {
    pub fn start(status: CaptureStatus) -> Self {
        let ((ask, asked), (tell, told)) = (mpsc::channel::<StreamId>(), mpsc::channel());
        thread::spawn(move || {
            for stream in asked {
                let windows = view(&status);
                let mine = windows.iter().find(|(window, _)| window.stream() == stream);
                let _ = tell.send((mine.map(|(_, phase)| *phase), status.is_capturing(stream)));
            }
        });
        Watcher { ask, told }
    }

    /// What the other thread sees of `stream`.
    pub fn sees(&self, stream: StreamId) -> Option<WindowPhase> {
        self.ask.send(stream).unwrap();
        let (phase, capturing) = self.told.recv().unwrap();
        assert_eq!(phase.is_some(), capturing);
        phase
    }
}
