def differences(lab, folder):
    return []
