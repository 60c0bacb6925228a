//! Which fault follows from which, and which does not.

use nvdiag::fault::FaultList;
use nvdiag::process_map::ProcessMap;
use nvdiag::session::Session;

fn explain(log: &str) -> FaultList {
    let mut session = Session::new(ProcessMap::default(), 64);
    session.feed(log.as_bytes());
    session.finish("the log")
}

fn xid(seconds: u32, gpu: &str, number: u32, message: &str) -> String {
    format!("[{seconds:>5}.000000] NVRM: Xid (PCI:0000:{gpu}:00): {number}, {message}\n")
}

fn nvgpu(seconds: u32, message: &str) -> String {
    format!("[{seconds:>5}.000000] nvgpu: 17000000.gpu f:1 [ERR]  {message}\n")
}

/// For each fault that is told: the line of its cause, and the lines that follow from it.
fn told(log: &str) -> Vec<(u64, Vec<u64>)> {
    let lines = |f: &nvdiag::fault::FaultReport| f.consequences.iter().map(|link| link.line).collect();
    explain(log).faults.iter().map(|fault| (fault.cause_line, lines(fault))).collect()
}

#[test]
fn a_lost_gpu_explains_what_follows_on_it_within_seconds() {
    let lost = xid(10, "01", 79, "GPU has fallen off the bus.");
    let next = |seconds, gpu| xid(seconds, gpu, 120, "GSP task exception.");
    assert_eq!(told(&(lost.clone() + &next(12, "01"))), [(1, vec![2])]);
    assert_eq!(told(&(lost.clone() + &next(12, "02"))), [(1, vec![]), (2, vec![])]);
    assert_eq!(told(&(lost + &next(60, "01"))), [(1, vec![]), (2, vec![])]);
}

#[test]
fn a_removed_channel_follows_from_the_fault_before_it_or_the_one_that_the_driver_names() {
    let fault = xid(
        10,
        "01",
        31,
        "pid=7, name=a, Ch 00000008, intr 00000000. MMU Fault: ENGINE GRAPHICS GPCCLIENT_T1_0 faulted @ 0x7f00_00000000. Fault is of type FAULT_PDE ACCESS_TYPE_VIRT_READ",
    );
    let removed = xid(11, "01", 45, "pid=8, name=b, Ch 00000010");
    assert_eq!(told(&(fault.clone() + &removed)), [(1, vec![2])]);
    // Alone it says that its cause is not there.
    let alone = explain(&removed);
    assert!(alone.faults[0].causes[0].contains("an earlier error"), "{:?}", alone.faults[0].causes);
    let named = xid(500, "01", 45, "pid=8, name=b, Ch 00000010 caused by previous Xid 149");
    let link = xid(10, "01", 149, "NETIR_LINK_EVT Fatal");
    assert_eq!(told(&(link + &named)), [(1, vec![2])]);
    // A second fault of another program is one of its own.
    let other = fault.replace("name=a", "name=c").replace("pid=7", "pid=9").replace("[   10", "[   12");
    assert_eq!(told(&(fault + &other)), [(1, vec![]), (2, vec![])]);
}

#[test]
fn a_broken_link_explains_a_lost_gpu_of_that_port_alone() {
    let aer = |from: &str| {
        format!("[    9.000000] pcieport 0000:00:01.0: AER: Uncorrected (Fatal) error received: {from}\n")
    };
    let lost = xid(10, "01", 79, "GPU has fallen off the bus.");
    assert_eq!(told(&(aer("0000:01:00.0") + &lost)), [(1, vec![2])]);
    assert_eq!(told(&(aer("0000:05:00.0") + &lost)), [(1, vec![]), (2, vec![])]);
    let corrected = aer("0000:01:00.0").replace("Uncorrected (Fatal)", "Corrected");
    assert_eq!(told(&(corrected + &lost)), [(2, vec![])]);
}

#[test]
fn power_and_memory_explain_what_stops_behind_them() {
    let alarm = "[    9.000000] soctherm: OC ALARM 0x00000001\n";
    let slow = nvgpu(20, "ctxsw timeout error: active engine id =0, tsg=3, info: ctxsw ms=3000");
    let late = nvgpu(200, "ctxsw timeout error: active engine id =0, tsg=3, info: ctxsw ms=3000");
    assert_eq!(told(&(alarm.to_owned() + &slow)), [(1, vec![2])]);
    assert_eq!(told(&(alarm.to_owned() + &late)), [(1, vec![]), (2, vec![])]);
    let killed = "[    9.000000] Out of memory: Killed process 7 (python3) total-vm:1kB\n";
    let freed = "[    9.100000] nvmap: nvmap_get() python3: python3 attempt to get a freed handle\n";
    assert_eq!(told(&(killed.to_owned() + freed)), [(1, vec![2])]);
    assert_eq!(told(freed), [(1, vec![])]);
}

#[test]
fn a_lost_gpu_is_no_part_of_the_fault_of_a_program_before_it() {
    let fault = xid(
        10,
        "01",
        31,
        "pid=7, name=a, Ch 00000008, intr 00000000. MMU Fault: ENGINE GRAPHICS GPCCLIENT_T1_0 faulted @ 0x7f00_00000000. Fault is of type FAULT_PDE ACCESS_TYPE_VIRT_READ",
    );
    assert_eq!(
        told(&(fault + &xid(10, "01", 79, "GPU has fallen off the bus."))),
        [(1, vec![]), (2, vec![])]
    );
}

#[test]
fn faults_of_two_machines_in_one_log_are_two_stories() {
    let line =
        |host: &str, second: u32, rest: &str| format!("Mar  4 09:13:{second:02} {host} kernel: {rest}\n");
    let lost = "NVRM: Xid (PCI:0000:01:00): 48, pid=1, name=a, DBE";
    let next = "NVRM: Xid (PCI:0000:01:00): 120, pid=2, name=b, GSP task exception";
    let log = |second: &str| line("node1", 1, lost) + &line(second, 3, next);
    assert_eq!(told(&log("node1")), [(1, vec![2])]);
    assert_eq!(told(&log("node2")), [(1, vec![]), (2, vec![])]);
}

#[test]
fn the_recovery_that_the_driver_asks_for_is_the_action() {
    let log = xid(10, "01", 79, "GPU has fallen off the bus.")
        + &xid(11, "01", 154, "GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)");
    let list = explain(&log);
    let action = &list.faults[0].judgement.action;
    assert!(action.ends_with("the driver asks for: Node Reboot Required"), "{action}");
    // A number that no catalogue has is nobody's.
    let list = explain(&xid(10, "01", 999, "something new"));
    assert_eq!(list.faults[0].judgement.whose, nvdiag::catalogue::Class::Unknown);
}

#[test]
fn a_container_that_is_out_of_memory_is_no_fault_of_the_gpu_without_a_line_of_it() {
    let killed = "[    9.000000] Memory cgroup out of memory: Killed process 7 (java) total-vm:1kB\n";
    assert_eq!(told(killed), []);
    let freed = "[    9.100000] nvmap: nvmap_get() java: java attempt to get a freed handle\n";
    assert_eq!(told(&(killed.to_owned() + freed)), [(1, vec![2])]);
}

#[test]
fn lines_of_one_start_and_of_one_shutdown_are_one_story() {
    let missing = "[    9.000000] nvidia 0000:01:00.0: Direct firmware load for nvidia/1/gsp_ga10x.bin failed with error -2\n";
    let failed = |second: u32| {
        format!("[   {second:>2}.000000] NVRM: GPU 0000:01:00.0: RmInitAdapter failed! (0x61:0x56:1697)\n")
    };
    assert_eq!(
        told(&(missing.to_owned() + &failed(10) + &failed(11).replace("0x61", "0x62"))),
        [(1, vec![2, 3])]
    );
    assert_eq!(told(&(missing.to_owned() + &failed(40))), [(1, vec![]), (2, vec![])]);
    let hot =
        "[   10.000000] thermal thermal_zone3: gpu-thermal: critical temperature reached, shutting down\n";
    let off = "[   11.000000] reboot: HARDWARE PROTECTION shutdown (Temperature too high)\n";
    assert_eq!(told(&(hot.to_owned() + off)), [(1, vec![2])]);
}

#[test]
fn tasks_that_hang_are_no_fault_of_the_gpu_by_themselves() {
    let hung = "[  300.000000] INFO: task jbd2/sda1-8:123 blocked for more than 120 seconds.\n";
    assert_eq!(told(hung), []);
    let fault = nvgpu(100, "sm hww global 0x00000004 warp 0x0000000e")
        + &nvgpu(100, "error notifier set to 13 for ch 5 owned by app");
    assert_eq!(told(&(fault.clone() + hung)), [(1, vec![])]);
    assert_eq!(told(&(fault + &hung.replace("jbd2/sda1-8", "app"))), [(1, vec![3])]);
}

#[test]
fn lines_of_information_and_cut_lines_without_their_shape_are_no_fault() {
    for line in [
        "nvgpu: 17000000.gpu f:1 [INFO]  sm hww global 0x00000004 warp 0x0000000e",
        "nvgpu: 17000000.gpu gr_fecs_dump:1 [WRN]  gr_fecs_os_r : 0",
        "arm-smmu 12000000.iommu: probing hardware configuration...",
        "arm-smmu 12000000.iommu: stream matching with 128 register groups",
        "nvmap: nvmap_probe: nvmap probe done",
        "nvmap_ioctl+0x3a4/0x1100 [nvmap]",
        "nouveau 0000:01:00.0: NVIDIA GP107 (137000a1)",
        "tegra-mc 2c00000.memory-controller: sync_state() pending due to 13e40000.host1x",
        "renderer[812]: INFO mmu fault handler installed",
        "Mar  4 09:13:01 ws1 node-problem-detector[99]: no Xid errors found, NVRM rm_init_adapter healthy",
        "NVRM: gpumgrGetSomeGpu: Failed to retrieve pGpu - Too early call!.",
    ] {
        let list = explain(line);
        assert!(!nvdiag::Report::has_problem(&list), "{line}: {list:?}");
    }
    // With the start of its shape behind the device's name a cut line is read.
    let cut = explain("arm-smmu 12000000.iommu: Unhandled context fault: fsr=0x402, iova=0x3ffd");
    assert_eq!(cut.faults.len(), 1);
}
